// Bundles the page into src/nfdrl/viewer/static/, with a hash of its sources that a test compares.
import { createHash } from "node:crypto";
import { copyFileSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = fileURLToPath(new URL(".", import.meta.url));
const out = fileURLToPath(new URL("../src/nfdrl/viewer/static/", import.meta.url));
const banner = { js: "/* nfdrl, MIT licence; with uPlot by Leon Sorokin, MIT licence: see uPlot.LICENSE */" };
const shared = {
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
};

await build({ ...shared, entryPoints: { page: `${here}src/main.ts` }, outdir: out, banner });
await build({ ...shared, entryPoints: { numerics: `${here}src/numerics.ts` }, outdir: `${here}built` }); // for the tests
copyFileSync(`${here}node_modules/axe-core/axe.min.js`, `${here}built/axe.min.js`); // for the tests
copyFileSync(`${here}node_modules/uplot/LICENSE`, `${out}uPlot.LICENSE`);
copyFileSync(`${here}page.html`, `${out}page.html`);

const sources = [
  ...readdirSync(`${here}src`)
    .sort()
    .map((name) => `src/${name}`),
  "build.mjs",
  "package-lock.json",
  "page.html",
];
const hash = createHash("sha256");
for (const name of sources)
  hash
    .update(`${name}\0`)
    .update(readFileSync(here + name))
    .update("\0");
hash.update(readFileSync(`${out}schema.json`));
writeFileSync(`${out}sources.sha256`, `${hash.digest("hex")}\n`);
