"""The people, places and things of the demo stories: words only, no plots.

Every table is drawn from with a seeded generator by story_grammar.py. A tuple holds words that
belong together, so that a fox lives in a den and a kite is lost in a place where kites get lost.
"""

GIRLS = """Lily Mia Anna Ella Rosie Clara Nora Daisy Hazel Ivy Poppy Maya Emma Zoe Lucy Ruby Tilly
Wren Molly Nina Olive Penny Stella Willa""".split()

BOYS = """Tom Ben Max Leo Sam Jack Oscar Finn Toby Milo Hugo Felix Jasper Otis Theo Charlie Noah
Rufus Peter Barney Arlo Bruno Casper Eddie""".split()

TRAITS = """little small young kind curious gentle clever cheerful shy quiet friendly lively
thoughtful happy careful merry""".split()

CHILDREN_HOMES = [
    "in a little house at the edge of the village",
    "in a tall house near the sea",
    "on a small farm in the hills",
    "in a yellow cottage by the river",
    "in a busy town with narrow streets",
    "in a white house with a big garden",
]

# (kind, homes)
ANIMALS = [
    ("rabbit", ["in a warm burrow under an old oak tree", "in a burrow at the edge of the meadow"]),
    ("mouse", ["in a tiny hole behind the kitchen wall", "in a nest of straw in the big barn"]),
    ("fox", ["in a den at the edge of the forest", "in a cozy den under the roots of a pine tree"]),
    ("bear", ["in a dry cave on the side of the hill", "in a big cave near a waterfall"]),
    ("duck", ["in the reeds beside a quiet pond", "on a small island in the middle of the lake"]),
    ("frog", ["on a lily pad in a green pond", "under a flat stone by the stream"]),
    ("hedgehog", ["under a pile of leaves in the garden", "in a snug hollow under the hedge"]),
    ("squirrel", ["high up in a tall chestnut tree", "in a hollow branch of an old oak tree"]),
    ("owl", ["in the hollow of an ancient tree", "at the top of the old stone tower"]),
    ("kitten", ["in a basket by the kitchen stove", "in a red barn on a quiet farm"]),
    ("puppy", ["in a wooden house in the yard", "on a busy farm with a red barn"]),
    ("turtle", ["beside a slow brown river", "near a pond full of lilies"]),
    ("otter", ["on the bank of a clear river", "in a den beside the stream"]),
    ("badger", ["in a deep house under the hill", "in a tidy burrow in the woods"]),
]

HOBBIES = ["climb trees", "sing songs", "paint pictures", "look at the clouds",
           "collect shiny stones", "read books", "run in the grass", "listen to the birds",
           "count the stars", "tell funny stories", "splash in puddles", "make up new games"]

COLORS = "red blue green yellow orange purple white silver golden".split()

TOYS = ["ball", "kite", "hat", "scarf", "whistle", "bell", "drum", "button", "ribbon", "toy boat",
        "spinning top", "marble"]

# (place, how to be there, hiding places in it)
PLACES = [
    ("the park", "in the park",
     ["under the bench", "behind the slide", "in the tall grass", "beside the fountain",
      "next to the swings"]),
    ("the beach", "at the beach",
     ["behind a big rock", "under an old boat", "in a pile of seaweed", "beside a sandcastle",
      "in a pool of water"]),
    ("the forest", "in the forest",
     ["under a fern", "behind a fallen log", "in a hollow tree", "beside the mushrooms",
      "among the roots of a tree"]),
    ("the garden", "in the garden",
     ["under the rose bush", "behind the shed", "in the flower bed", "beside the well",
      "among the cabbages"]),
    ("the meadow", "in the meadow",
     ["under a clover leaf", "behind the stone wall", "in the long grass", "beside the gate",
      "among the daisies"]),
    ("the pond", "by the pond",
     ["under the wooden bridge", "behind the reeds", "in the mud", "beside the willow tree",
      "among the lilies"]),
    ("the farm", "on the farm",
     ["under the cart", "behind the barn", "in the haystack", "beside the trough",
      "among the pumpkins"]),
]

FOODS = ["apple", "pear", "honey cake", "cheese sandwich", "berry pie", "warm bun", "carrot",
         "bowl of soup", "loaf of bread", "cookie", "pancake", "slice of melon"]

GAMES = ["hide-and-seek", "tag", "catch", "leapfrog", "hopscotch", "follow the leader"]

DAYS = ["sunny", "warm", "bright", "windy", "fine", "clear", "fresh", "lovely", "quiet"]

TIMES = ["morning", "afternoon", "day"]

GLAD = ["happy", "glad", "delighted", "pleased"]

SAD = ["sad", "unhappy", "upset", "miserable"]

PARENTS = [("mother", "she", "her"), ("father", "he", "his"), ("grandmother", "she", "her"),
           ("grandfather", "he", "his"), ("aunt", "she", "her"), ("uncle", "he", "his")]
