"""The pictures of docs/pictures.md: `python docs/pictures/draw.py` draws them beside this file."""

from pathlib import Path

from matplotlib.figure import Figure

import regard
from regard import masks, pictures

TEXT = (
    "The Law will never be perfect, but its application should be just - "
    "this is what we are missing, in my opinion."
)


def figures() -> dict[str, Figure]:
    """Each by its name; the model is fetched where it was not before."""
    trace = regard.models.load("minilm").look(TEXT)
    mask = masks.causal() & masks.window(9, 0)
    return {
        "heads": pictures.heads(trace),
        "heat": pictures.heat(trace, (3, 1), title="layer 3, head 1"),
        "links": pictures.links(trace, (3, 1), dark=True, n=40, width=4.4),
        "mask": pictures.mask(mask, 32, tile=(4, 4), width=5),
        "shapes": pictures.shapes((8, 1024, 64), (2, 4096, 64), (2, 4096, 64)),
    }


if __name__ == "__main__":
    for name, figure in figures().items():
        figure.savefig(Path(__file__).with_name(f"{name}.png"), dpi=80)
