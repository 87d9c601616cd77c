"""`rlzoo diagnose` as tests ask it."""

from helpers.zoo import ZOO
from rlzoo.cli import parser_of
from rlzoo_lab.diagnose import exact as exact_diagnosis
from rlzoo_lab.kit.oracle.episodes import enumerate_episodes, make_columns
from rlzoo_lab.kit.oracle.subject import EstimatorInWorld
from rlzoo_lab.kit.oracle.worlds import make_critic

SMALL = ("--vocabulary", 4, "--horizon", 3, "--batches", "0")


def parse(*words):
    parser = parser_of("diagnose")
    return parser.parse_intermixed_args([str(w) for w in words])


def ask(*words, zoo=ZOO):
    arguments = parse(*words)
    return exact_diagnosis.diagnose(arguments.words, arguments, zoo)


def subject(zoo, name, oracle, *, samples=4, critic="exact", **options):
    episodes = enumerate_episodes(oracle)
    columns = make_columns(oracle, episodes, make_critic(critic, oracle))
    return EstimatorInWorld(zoo.estimators[name], options, oracle, episodes, columns,
                   samples=samples)  # fmt: skip
