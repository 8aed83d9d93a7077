"""What the paper reports (its section 4), for comparison.  Negative log joints."""

from __future__ import annotations

from typing import NamedTuple


class Search(NamedTuple):
    value: float
    clusters: int
    seconds: float
    rate: float  # points per second


class Sampler(NamedTuple):
    value: float
    about: str


# Section 4.2, by share of MNIST.
MNIST = {
    0.05: Search(2.04e5, 11, 11.0, 270.0),
    0.2: Search(8.02e5, 21, 105.0, 115.0),
    1.0: Search(3.96e6, 27, 15 * 60.0, 66.0),
}
MNIST_SAMPLERS = {
    0.05: {
        "gibbs": Sampler(2.09e5, "100 iterations of 40 s"),
        "split-merge": Sampler(2.05e5, "almost 2 hours"),
    },
    0.2: {
        "gibbs": Sampler(8.34e5, "100 iterations of 18 minutes"),
        "split-merge": Sampler(8.15e5, "8 hours"),
    },
    1.0: {
        "gibbs": Sampler(4.2e6, "15 iterations of 7 hours"),
        "split-merge": Sampler(4.1e6, "15 iterations, 7 days"),
    },
}

# Section 4.3.
NIPS = Search(2.4407e6, 14, 21.0, 83.0)
NIPS_DESCENDING = 2.4740e6
NIPS_RANDOM = 2.4489e6
# Called the variance; in these units it can only be the standard deviation.
NIPS_RANDOM_SPREAD = 0.0067e6
NIPS_RANDOM_BEST = 2.4403e6
NIPS_SAMPLERS = {
    "gibbs": Sampler(3.2e6, "a little over an hour"),
    "split-merge": Sampler(3.0e6, "a little over an hour"),
}
# Table 1: the most indicative words of the ten largest clusters.
NIPS_WORDS = [
    "training hidden units error learning weight generalization network weights regression layer"
    " algorithm recurrent gradient nodes prediction theorem convergence node student",
    "spike neuron neurons cells synaptic firing cell cortical cortex activity synapses stimulus"
    " excitatory orientation inhibitory membrane spikes ocular dominance fig",
    "mixture speech em likelihood image tangent hmm clustering word images pca recognition"
    " posterior bayesian speaker gaussian experts kernel cluster classification",
    "chip circuit analog motion image voltage vlsi visual auditory images velocity sound retina"
    " intensity optical pulse disparity template pixel silicon",
    "policy reinforcement state controller action control actions robot reward agent mdp learning"
    " states sutton policies trajectory planning singh barto rl",
    "object objects units views face image hidden unit visual images recognition attractor"
    " activation faces features layer attention feature representations module",
    "bounds threshold polynomial bound theorem depth boolean proof gates lemma dimension tree node"
    " concept clause class functions winnow boosting maass",
    "motion head motor visual eeg eye direction subjects stimulus ica movements cells movement"
    " cortex velocity cue field parietal vor spatial",
    "word classifiers classifier hmm rbf character recognition training speech mlp characters"
    " hybrid user context net hidden layer trained words error",
    "belief evidence similarity posterior bayesian retrieval user propagation hypotheses query"
    " concept approximation examples exact images iii image mackay database nodes",
]
