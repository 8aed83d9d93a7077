"""The scores of best-first search for every possible state."""

from dpsearch.prefix_search import best_first as bf
from dpsearch.prefix_search.search import HEURISTICS


def scores_of_prefixes(problem, heuristic, order):
    """Map the labels of each prefix, in placing order, to its score under a heuristic."""
    prepared, scores = HEURISTICS[heuristic](problem, order), {}
    states, room = bf.zeros(bf._States, 1000), bf._new_room(problem)
    store = bf._new_store(1000, problem.model.core.width)
    states.parent[0], states.first[0] = -1, 0
    core, items, n = problem.model.core, problem.items, problem.n_items
    stack, n_states, n_rows, n_lists = [0], 1, 0, 0
    rule = problem.prior.completion_rule() or bf.NO_RULE
    while stack:
        state = stack.pop()
        if states.level[state] == n:
            continue
        if states.level[state] > 0:
            bf._store_clusters(core, items, order, states, store, state, n_rows, n_lists)
            n_rows += 1
            n_lists += states.count[state]
        made = bf._expand(
            core, items, problem.alone, problem.tables, rule, prepared, order, states, store, room,
            state, n_states,
        )  # fmt: skip
        for child in range(n_states, n_states + made):
            prefix = bf._labels(states, child, order)[order][: states.level[child]]
            scores[tuple(prefix)] = room.out[child - n_states] + problem.log_base
            stack.append(child)
        n_states += made
    return scores
