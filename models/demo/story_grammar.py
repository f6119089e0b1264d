"""Draws a children's story: a cast, a plot, and a choice in every beat.

A plot is a list of beats; a beat is a list of alternatives of the same meaning. Slots such as
{name} are filled from one cast per story, which is what keeps the characters, the places and the
lost red kite the same from the first sentence to the last.

Slots of every story: name kind home trait a_hero / friend fkind a_friend a_fkind / obj a_obj toy
/ place at spot1 spot2 / parent phe phis / food a_food / hobby game / day time / glad sad, the
hero's he his him himself, the friend's fhe fhis fhim fhimself. A capital first letter in the slot
capitalises what fills it.
"""

import random

import story_plots_friends
import story_plots_growing
import story_words as words

PLOTS = story_plots_friends.PLOTS + story_plots_growing.PLOTS

OPENINGS = [
    "Once upon a time, there was {a_hero} named {name} who lived {home}.",
    "Once upon a time, {a_hero} named {name} lived {home}.",
    "Once upon a time, {home}, there lived {a_hero} named {name}.",
    "Once upon a time, there was {a_hero} named {name}. {He} lived {home} and liked to {hobby}.",
    "Once upon a time, there lived {a_hero} called {name}. Every day, {he} liked to {hobby}.",
    "There was once {a_hero} named {name}, and {he} lived {home}.",
    "{Name} was {a_hero} who lived {home}. {He} loved to {hobby}.",
]

CLOSINGS = [
    "", "", "", "", "The end.", "And that was the end of a very good day.",
    "That night, {name} slept very well.", "And {name} smiled all the way home.",
]

_PRONOUNS = {
    "girl": {"he": "she", "his": "her", "him": "her", "himself": "herself"},
    "boy": {"he": "he", "his": "his", "him": "him", "himself": "himself"},
}


def with_article(phrase):
    return ("an " if phrase[0] in "aeiou" else "a ") + phrase


def _draw_character(rng, taken_name, taken_kind):
    gender = rng.choice(["girl", "boy"])
    names = words.GIRLS if gender == "girl" else words.BOYS
    name = rng.choice([n for n in names if n != taken_name])
    if rng.random() < 0.3:
        kind, homes = gender, words.CHILDREN_HOMES
    else:
        kind, homes = rng.choice([a for a in words.ANIMALS if a[0] != taken_kind])
    return gender, name, kind, rng.choice(homes)


def _draw_cast(rng):
    gender, name, kind, home = _draw_character(rng, None, None)
    friend_gender, friend, friend_kind, _ = _draw_character(rng, name, kind)
    trait, friend_trait = rng.sample(words.TRAITS, 2)
    color, toy = rng.choice(words.COLORS), rng.choice(words.TOYS)
    place, at_place, spots = rng.choice(words.PLACES)
    spot1, spot2 = rng.sample(spots, 2)
    parent, parent_he, parent_his = rng.choice(words.PARENTS)
    food = rng.choice(words.FOODS)
    cast = {
        "name": name, "kind": kind, "home": home, "trait": trait,
        "a_hero": with_article(f"{trait} {kind}"),
        "friend": friend, "fkind": friend_kind,
        "a_friend": with_article(f"{friend_trait} {friend_kind}"),
        "a_fkind": with_article(friend_kind),
        "obj": f"{color} {toy}", "a_obj": with_article(f"{color} {toy}"), "toy": toy,
        "place": place, "at": at_place, "spot1": spot1, "spot2": spot2,
        "parent": parent, "phe": parent_he, "phis": parent_his,
        "food": food, "a_food": with_article(food),
        "hobby": rng.choice(words.HOBBIES), "game": rng.choice(words.GAMES),
        "day": rng.choice(words.DAYS), "time": rng.choice(words.TIMES),
        "glad": rng.choice(words.GLAD), "sad": rng.choice(words.SAD),
    }
    cast.update(_PRONOUNS[gender])
    cast.update({"f" + slot: word for slot, word in _PRONOUNS[friend_gender].items()})
    return cast


def _fill(template, cast):
    # A drawn phrase may itself name a slot ("{his} bed"), hence the second round.
    return template.format_map(cast).format_map(cast)


def draw_story(rng):
    """One story as a single paragraph; rng is a random.Random."""
    cast = _draw_cast(rng)
    plot = rng.choice(PLOTS)
    for slots, choices in plot["draws"].items():
        values = rng.choice(choices)
        names = slots.split()
        cast.update(zip(names, values if len(names) > 1 else [values]))
    for slot in list(cast):
        cast[slot.capitalize()] = cast[slot][:1].upper() + cast[slot][1:]
    beats = [OPENINGS] + plot["beats"] + [CLOSINGS]
    sentences = [_fill(rng.choice(beat), cast) for beat in beats]
    return " ".join(s for s in sentences if s)


def draw_stories(seed, count):
    rng = random.Random(seed)
    return [draw_story(rng) for _ in range(count)]
