"""The colours of every figure."""

# Okabe and Ito (2008): eight colours that are distinct for every kind of colour vision.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY, LIGHT, INK = "#8c8c8c", "#d9d9d9", "#333333"
