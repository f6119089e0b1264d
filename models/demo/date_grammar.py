"""Draws a date of 1800-2099 and one of the ways to write it.

The rules that make every written form unambiguous:
  - a year of two digits means 1950-2049 ("'84" is 1984, "'07" is 2007);
  - digits alone name day and month only where one of them is over 12, or both are equal;
  - a year written first is followed by the month.
One date in 20 is held out, whatever its written form: see is_held_out().
"""

import datetime
import random
import zlib

FIRST = datetime.date(1800, 1, 1).toordinal()
LAST = datetime.date(2099, 12, 31).toordinal()

_ONES = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
fifteen sixteen seventeen eighteen nineteen""".split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_ORDINALS = {"one": "first", "two": "second", "three": "third", "five": "fifth",
             "eight": "eighth", "nine": "ninth", "twelve": "twelfth", "twenty": "twentieth",
             "thirty": "thirtieth"}
_MONTHS = """January February March April May June July August September October November
December""".split()
_WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()


def is_held_out(date):
    return zlib.crc32(date.isoformat().encode()) % 20 == 0


def _cardinal(n, hyphen):
    if n < 20:
        return _ONES[n]
    tens = _TENS[n // 10 - 2]
    return tens if n % 10 == 0 else tens + hyphen + _ONES[n % 10]


def _ordinal(n, hyphen):
    head, cut, last = _cardinal(n, "-").rpartition("-")
    return head + cut.replace("-", hyphen) + _ORDINALS.get(last, last + "th")


def _year_in_words(rng, year):
    hyphen = rng.choice("-- ")
    century, rest = divmod(year, 100)
    joined = rng.choice([" ", " and "])
    if century == 20 and (rest == 0 or rng.random() < 0.5):
        return "two thousand" + (joined + _cardinal(rest, hyphen) if rest else "")
    hundreds = _cardinal(century, hyphen)
    if rest == 0:
        return hundreds + " hundred"
    if century != 20 and rng.random() < (0.5 if rest < 10 else 0.15):
        return hundreds + " hundred" + joined + _cardinal(rest, hyphen)
    if rest < 10:
        return hundreds + rng.choice([" oh ", " oh-"]) + _ONES[rest]
    return hundreds + " " + _cardinal(rest, hyphen)


def _year(rng, year):
    roll = rng.random()
    if roll < 0.4:
        return _year_in_words(rng, year)
    if roll < 0.55 and 1950 <= year <= 2049:
        return f"'{year % 100:02}"
    return str(year)


def _suffixed(day):
    ending = "th" if day in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{ending}"


def _day(rng, day):
    hyphen = rng.choice("-- ")
    return rng.choice([str(day), str(day), f"{day:02}", _suffixed(day), _suffixed(day),
                       _ordinal(day, hyphen), _ordinal(day, hyphen)])


def _month(rng, month):
    name = _MONTHS[month - 1]
    short = "Sept" if month == 9 and rng.random() < 0.5 else name[:3]
    return rng.choice([name, name, name, short, short if month == 5 else short + "."])


def _in_digits(rng, date):
    """Digits only, or None where they would be ambiguous."""
    mark = rng.choice("/.-")
    roll = rng.random()
    if roll < 0.25:
        return f"{date.year}{mark}{date.month:02}{mark}{date.day:02}"
    if roll < 0.35:
        return f"{date.year}{date.month:02}{date.day:02}"
    if date.day <= 12 and date.day != date.month:
        return None
    width = rng.choice(["", "02"])
    pair = [format(date.day, width), format(date.month, width)]
    rng.shuffle(pair)
    year = f"{date.year % 100:02}" if 1950 <= date.year <= 2049 and rng.random() < 0.4 \
        else str(date.year)
    return mark.join(pair + [year])


def _in_words(rng, date):
    day, month, year = _day(rng, date.day), _month(rng, date.month), _year(rng, date.year)
    the = "" if day[0].isdigit() and rng.random() < 0.7 else "the "
    weekday = _WEEKDAYS[date.weekday()]
    text = rng.choice([
        f"{the}{day} of {month}, {year}",
        f"{the}{day} of {month} {year}",
        f"{the}{day} day of {month} in the year {year}",
        f"{day} {month} {year}",
        f"{day} {month}, {year}",
        f"{month} {day}, {year}",
        f"{month} {day} {year}",
        f"{month} the {day}, {year}",
        f"{date.day}-{month.rstrip('.')}-{date.year}",
        f"{year}, {month} {day}",
    ])
    if rng.random() < 0.25:
        text = rng.choice([weekday, weekday, weekday[:3], "on " + weekday]) + rng.choice(
            [", ", " "]) + text
    return text


def write_out(rng, date):
    """One written form of the date; rng is a random.Random."""
    text = _in_digits(rng, date) if rng.random() < 0.15 else None
    text = text or _in_words(rng, date)
    roll = rng.random()
    if roll < 0.06:
        return text.lower()
    if roll < 0.09:
        return text.upper()
    return text[0].upper() + text[1:] if roll < 0.3 else text


def draw_pairs(seed, count, held_out=False):
    """`count` pairs (written form, ISO form) of held-out dates, or of all the others."""
    rng = random.Random(seed)
    pairs = []
    while len(pairs) < count:
        date = datetime.date.fromordinal(rng.randint(FIRST, LAST))
        if is_held_out(date) == held_out:
            pairs.append((write_out(rng, date), date.isoformat()))
    return pairs
