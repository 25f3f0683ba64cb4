// What the tests hold to Python, without a page around it.
export { pit, coverage } from "./calibrate";
export { colourOf } from "./dom";
export { LawTable } from "./laws";
export { parse, valuation } from "./risk";
export { riskAt } from "./riskcontrol";
