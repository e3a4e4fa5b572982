"""An explanation of a value as nested lines that fit a page."""

from dataclasses import dataclass, field

from caraway.compute.why.showing import Line

# A page shows at most so many lines and characters of an explanation, and so many characters of a line, since an
# explanation may have thousands of lines. The command and the API show it uncut.
MAX_LINES, MAX_CHARACTERS, MAX_LINE = 600, 60_000, 2_000


@dataclass(slots=True)
class Shortened:
    """Lines of an explanation, and the number of those that were left out."""

    lines: list[Line] = field(default_factory=list)
    left_out: int = 0


def shortened(
    root: Line, *, lines: int = MAX_LINES, characters: int = MAX_CHARACTERS, longest: int = MAX_LINE
) -> Shortened:
    """Return what is below a line, from its begin on, as far as it fits.

    Args:
        root: The line.
        lines: The most lines.
        characters: The most characters of all of them.
        longest: The most characters of a line. Longer ones are cut.
    """
    found = Shortened()
    left = [lines, characters]

    def copied(line: Line) -> Line | None:
        text = line.text if len(line.text) <= longest else f"{line.text[: longest - 1]}…"
        if left[0] < 1 or left[1] < len(text):
            # Nothing comes after the first line that doesn't fit, so that lines are left out at the end only.
            left[0] = 0
            found.left_out += _count(line)
            return None
        left[0] -= 1
        left[1] -= len(text)
        return Line(text, [below for each in line.below if (below := copied(each)) is not None])

    found.lines = [line for each in root.below if (line := copied(each)) is not None]
    return found


def _count(line: Line) -> int:
    return 1 + sum(map(_count, line.below))
