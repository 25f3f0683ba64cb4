"""The claims of the appendix as numbers: each function measures one and returns its rows, and what a figure needs."""
