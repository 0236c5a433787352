"""What a filter's words admit. Pure."""

import re
from dataclasses import dataclass
from functools import lru_cache

_RANKS = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True)
class Filter:
    """All words of ``text`` must be met: a number names a rank, ``4-7`` several; any other word
    is part of the line, in whatever case. Numbers are alternatives to each other."""

    words: tuple[str, ...]
    ranges: tuple[tuple[int, int], ...]

    def admits(self, text: str, rank: int | None = None) -> bool:
        """Whether a line that reads ``text`` (and is of ``rank``, if of one) is shown."""
        if self.ranges:
            if rank is None:
                numbers = {int(number) for number in re.findall(r"\d+", text)[:64]}
                if not any(
                    low <= number <= high for number in numbers for low, high in self.ranges
                ):
                    return False
            elif not any(low <= rank <= high for low, high in self.ranges):
                return False
        folded = text.casefold()
        return all(word in folded for word in self.words)


@lru_cache(maxsize=8)
def parsed(text: str) -> Filter:
    """The filter that a user typed."""
    words, ranges = [], []
    for word in text.split():
        number = _RANKS.fullmatch(word)
        if number is None:
            words.append(word.casefold())
        else:
            low = int(number[1])
            ranges.append((low, int(number[2] or low)))
    return Filter(tuple(words), tuple(ranges))
