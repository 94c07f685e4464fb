"""Regular expressions of clients, in RE2's syntax as Kafka's brokers take them (RE2/J), matched in linear time.

Python's own `re` takes exponential time for some expressions, and stops the whole process meanwhile. Here an expression
becomes a program of a Pike machine (Russ Cox, "Regular Expression Matching: the Virtual Machine Approach"): all
alternatives advance side by side, one character of the text at a time.
"""

import unicodedata
from collections.abc import Callable, Sequence
from typing import NoReturn

from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.values import frozen
from ..traffic.steps import Steps

LENGTH_MAX = 1000
_REPEAT_MAX = 1000
_PROGRAM_MAX = 2000
_DEPTH_MAX = 100
_THREADS_PER_STEP = 5_000

Takes = Callable[[str], bool]
"""True for a character that an element of the expression stands for."""


@frozen(eq=False)
class _Take:
    takes: Takes


@frozen(eq=False)
class _Assert:
    holds: Callable[[str, int], bool]


@frozen(eq=False)
class _Sequence:
    parts: Sequence["_Node"]


@frozen(eq=False)
class _Choice:
    options: Sequence["_Node"]


@frozen(eq=False)
class _Repeat:
    node: "_Node"
    least: int
    most: int | None


_Node = _Take | _Assert | _Sequence | _Choice | _Repeat


class _Split:
    """An instruction: continue in several places."""

    __slots__ = ("targets",)

    def __init__(self, *targets: int) -> None:
        self.targets = list(targets)


def _is_word(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character == "_")


def _at_boundary(text: str, at: int) -> bool:
    before = at > 0 and _is_word(text[at - 1])
    return before != (at < len(text) and _is_word(text[at]))


def _ascii(characters: str) -> Takes:
    return frozenset(characters).__contains__


_DIGITS, _SPACES = "0123456789", "\t\n\f\r "
_LOWER, _UPPER = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_PERL: dict[str, Takes] = {"d": _ascii(_DIGITS), "s": _ascii(_SPACES), "w": _is_word}
_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
_POSIX: dict[str, Takes] = {
    "alnum": _ascii(_DIGITS + _LOWER + _UPPER),
    "alpha": _ascii(_LOWER + _UPPER),
    "ascii": str.isascii,
    "blank": _ascii("\t "),
    "digit": _ascii(_DIGITS),
    "lower": _ascii(_LOWER),
    "punct": _ascii(_PUNCTUATION),
    "space": _ascii("\t\n\v\f\r "),
    "upper": _ascii(_UPPER),
    "word": _is_word,
    "xdigit": _ascii(_DIGITS + "abcdefABCDEF"),
}
_ESCAPED = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_SUBCATEGORIES = {"C": "cfos", "L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios", "S": "ckmo", "Z": "lps"}
_CATEGORIES = frozenset(("C", "L", "M", "N", "P", "S", "Z")) | frozenset(
    general + detail for general, details in _SUBCATEGORIES.items() for detail in details
)
_ASSERTIONS: dict[str, Callable[[str, int], bool]] = {
    "A": lambda _, at: at == 0,
    "z": lambda text, at: at == len(text),
    "b": _at_boundary,
    "B": lambda text, at: not _at_boundary(text, at),
}


def _not(takes: Takes) -> Takes:
    return lambda character: not takes(character)


def _any_of(options: Sequence[Takes]) -> Takes:
    return lambda character: any(takes(character) for takes in options)


class _Parser:
    """Reads an expression from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._ignores_case = False
        self._dot_takes_all = False

    def parse(self) -> _Node:
        node = self._choice()
        if self._at < len(self._text):
            self._refuse("unexpected )")
        return node

    def _refuse(self, why: str) -> NoReturn:
        text = f"{why} at {self._at} in the regular expression {self._text!r}"
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, text)

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self, expected: str) -> bool:
        if self._text.startswith(expected, self._at):
            self._at += len(expected)
            return True
        return False

    def _choice(self) -> _Node:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            self._refuse("too many groups within each other")
        flags = self._ignores_case, self._dot_takes_all
        options = [self._sequence()]
        while self._skip("|"):
            options.append(self._sequence())
        self._ignores_case, self._dot_takes_all = flags
        self._depth -= 1
        return options[0] if len(options) == 1 else _Choice(options)

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self._next() not in ("", "|", ")"):
            if self._skip("\\Q"):
                quoted, _, _ = self._text[self._at :].partition("\\E")
                self._at = min(len(self._text), self._at + len(quoted) + 2)
                parts += [_Take(self._literal(each)) for each in quoted]
                node = parts.pop() if quoted else None
            else:
                node = self._atom()
            if node is not None:
                parts.append(self._repeated(node))
        return parts[0] if len(parts) == 1 else _Sequence(parts)

    def _repeated(self, node: _Node) -> _Node:
        bounds = self._bounds()
        if bounds is None:
            return node
        self._skip("?")  # as few as possible: which does not matter where the whole text has to match
        if self._next() in ("*", "+", "?") or self._bounds() is not None:
            self._refuse("a repetition of a repetition")
        return _Repeat(node, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._skip(sign):
                return bounds
        end = self._text.find("}", self._at)
        if self._next() != "{" or end < 0:
            return None
        least, comma, most = self._text[self._at + 1 : end].partition(",")
        if not _is_number(least) or (most and not _is_number(most)):
            return None  # then it stands for itself
        self._at = end + 1
        begin = int(least)
        last = int(most) if most else None if comma else begin
        if max(begin, last or 0) > _REPEAT_MAX or (last is not None and last < begin):
            self._refuse("a repetition that is too often, or ends before it begins,")
        return begin, last

    def _atom(self) -> _Node | None:
        """None for flags, which stand for no text."""
        character = self._next()
        self._at += 1
        match character:
            case "(":
                return self._group()
            case "[":
                return _Take(self._class())
            case ".":
                return _Take((lambda _: True) if self._dot_takes_all else lambda each: each != "\n")
            case "^":
                return _Assert(_ASSERTIONS["A"])
            case "$":
                return _Assert(_ASSERTIONS["z"])
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                self._refuse("nothing to repeat")
        return _Take(self._literal(character))

    def _group(self) -> _Node | None:
        flags = self._ignores_case, self._dot_takes_all
        if self._skip("?"):
            if self._skip("P<") or (not self._text.startswith(("<=", "<!"), self._at) and self._skip("<")):
                name, closed, _ = self._text[self._at :].partition(">")
                if not closed or not name.isidentifier():
                    self._refuse("a group without a name")
                self._at += len(name) + 1
            elif not self._flags():
                return None
        node = self._choice()
        if not self._skip(")"):
            self._refuse("missing )")
        self._ignores_case, self._dot_takes_all = flags
        return node

    def _flags(self) -> bool:
        """`i`, `s`, `U` and `-i`, `-s`, `-U`; False where no group follows."""
        is_on = True
        while (flag := self._next()) not in (":", ")"):
            self._at += 1
            match flag:
                case "-" if is_on:
                    is_on = False
                case "i":
                    self._ignores_case = is_on
                case "s":
                    self._dot_takes_all = is_on
                case "U":
                    pass
                case _:
                    self._refuse("something that RE2 does not have, like look-around, or a flag that is not taken,")
        self._at += 1
        return flag == ":"

    def _literal(self, character: str) -> Takes:
        if not self._ignores_case:
            return character.__eq__
        folded = character.casefold()
        return lambda each: each.casefold() == folded

    def _escape(self) -> _Node:
        character = self._next()
        if character in _ASSERTIONS and character:
            self._at += 1
            return _Assert(_ASSERTIONS[character])
        found = self._escaped_class()
        return _Take(found if found is not None else self._literal(self._escaped_character()))

    def _escaped_class(self) -> Takes | None:
        """Behind a backslash."""
        character = self._next()
        if character.lower() in _PERL and character:
            self._at += 1
            takes = _PERL[character.lower()]
            return _not(takes) if character.isupper() else takes
        if character not in ("p", "P") or not character:
            return None
        self._at += 1
        if self._skip("{"):
            name, closed, _ = self._text[self._at :].partition("}")
            if not closed:
                self._refuse("missing }")
            self._at += len(name) + 1
        else:
            name = self._next()
            self._at += 1
        is_without = (character == "P") != name.startswith("^")
        name = name.removeprefix("^")
        if name not in _CATEGORIES:
            self._refuse(f"a class of characters that is not known here, {name!r},")
        return _not(_in_category(name)) if is_without else _in_category(name)

    def _escaped_character(self) -> str:
        """Behind a backslash: one character."""
        character = self._next()
        self._at += 1
        if character in _ESCAPED:
            return _ESCAPED[character]
        if character == "x":
            digits = self._text[self._at : self._at + 2]
            size = 2
            if digits.startswith("{"):
                digits = self._text[self._at + 1 :].partition("}")[0]
                size = len(digits) + 2
            try:
                self._at += size
                return chr(int(digits, 16))
            except (ValueError, OverflowError):
                self._refuse("no number of a character")
        if not character or character.isalnum():
            self._refuse(f"an escape that RE2 does not have, \\{character},")
        return character

    def _class(self) -> Takes:
        """Behind the [."""
        is_without = self._skip("^")
        options: list[Takes] = []
        is_first = True
        while is_first or not self._skip("]"):
            is_first = False
            if not self._next():
                self._refuse("missing ]")
            options.append(self._class_item())
        return _not(_any_of(options)) if is_without else _any_of(options)

    def _class_item(self) -> Takes:
        if self._skip("[:"):
            name, closed, _ = self._text[self._at :].partition(":]")
            takes = _POSIX.get(name.removeprefix("^"))
            if not closed or takes is None:
                self._refuse("a class of characters that is not known here")
            self._at += len(name) + 2
            return _not(takes) if name.startswith("^") else takes
        if self._next() == "\\":
            self._at += 1
            found = self._escaped_class()
            if found is not None:
                return found
            low = self._escaped_character()
        else:
            low = self._next()
            self._at += 1
        if self._next() != "-" or self._text[self._at + 1 : self._at + 2] in ("]", ""):
            return self._literal(low)
        self._at += 1
        if self._skip("\\"):
            high = self._escaped_character()
        else:
            high = self._next()
            self._at += 1
        if high < low:
            self._refuse("a range that ends before it begins")
        return self._range(low, high)

    def _range(self, low: str, high: str) -> Takes:
        if not self._ignores_case:
            return lambda each: low <= each <= high
        return lambda each: any(low <= form <= high for form in (each, each.lower(), each.upper()))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _in_category(name: str) -> Takes:
    return lambda each: unicodedata.category(each).startswith(name)


class RegularExpression:
    """An expression that is to match whole texts. Raises `ApiError` INVALID_REGULAR_EXPRESSION for one that is none, or
    is too long."""

    def __init__(self, text: str) -> None:
        if len(text) > LENGTH_MAX:
            why = f"a regular expression of {len(text)} characters; at most {LENGTH_MAX} are taken"
            raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, why)
        self._program: list[_Take | _Assert | _Split] = []
        """The end of the program is the end of a match."""
        self._compile(_Parser(text).parse())

    def matches(self, text: str) -> Steps[bool]:
        """Return True if the expression matches the whole text. In steps: the time grows with both lengths."""
        program, end = self._program, len(self._program)
        threads = self._reached([0], text, 0)
        work = 0
        for at, character in enumerate(text):
            following = []
            for place in threads:
                instruction = program[place] if place < end else None
                if isinstance(instruction, _Take) and instruction.takes(character):
                    following.append(place + 1)
            threads = self._reached(following, text, at + 1)
            if not threads:
                return False
            work += len(threads)
            if work > _THREADS_PER_STEP:
                work = 0
                yield None
        return end in threads

    def _reached(self, places: Sequence[int], text: str, at: int) -> set[int]:
        """Return the places where the program stands before the next character, each of them once."""
        reached: set[int] = set()
        waiting = list(places)
        while waiting:
            place = waiting.pop()
            if place in reached:
                continue
            reached.add(place)
            instruction = self._program[place] if place < len(self._program) else None
            if isinstance(instruction, _Split):
                waiting += instruction.targets
            elif isinstance(instruction, _Assert) and instruction.holds(text, at):
                waiting.append(place + 1)
        return reached

    def _compile(self, node: _Node) -> None:
        program = self._program
        if len(program) > _PROGRAM_MAX:
            text = "a regular expression whose repetitions are too large"
            raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, text)
        match node:
            case _Take() | _Assert():
                program.append(node)
            case _Sequence(parts=parts):
                for part in parts:
                    self._compile(part)
            case _Choice(options=options):
                self._compile_choice(options)
            case _Repeat(node=repeated, least=least, most=most):
                for _ in range(least):
                    self._compile(repeated)
                if most is None:
                    begin = len(program)
                    split = _Split(begin + 1)
                    program.append(split)
                    self._compile(repeated)
                    program.append(_Split(begin))
                    split.targets.append(len(program))
                else:
                    splits = []
                    for _ in range(most - least):
                        splits.append(_Split(len(program) + 1))
                        program.append(splits[-1])
                        self._compile(repeated)
                    for split in splits:
                        split.targets.append(len(program))

    def _compile_choice(self, options: Sequence[_Node]) -> None:
        program = self._program
        begin, ends = _Split(), []
        program.append(begin)
        for option in options:
            begin.targets.append(len(program))
            self._compile(option)
            ends.append(_Split())
            program.append(ends[-1])
        for end in ends:
            end.targets.append(len(program))
