"""The kinds of components: the methods that a new component has to provide, and the defaults it inherits.

A component is frozen and holds no state. It sees predictions, weights and signatures, but never the engine, the
configuration, the data set or another component. Other code uses only the methods and attributes listed here, never a
component's class or name; a method that is not overridden has a default. In the order of a round:

====================  =================================  ========================================  ====================
method                called by                          when                                      default
====================  =================================  ========================================  ====================
`Aggregator`
``count_rows``        memory estimates                   before a run                              the grouping's
``initial_state``     the server                         before round 0                            nothing
``offer``             the server, for newcomers          each round but the first, at its start    the own cluster's row
``blend``             each client                        each round but the first, before training the own model
``expected_reports``  the server, to check uploads       each round but the first                  ``reports``
``first_groups``      the server                         round 0, where clients choose their group refused
``gather``            the server                         each round, after all uploads             means of clusters
``server_step``       the server                         each round, after ``gather``              ``gather``'s rows
``answer``            clients, also without labels       each round, after ``gather``              nothing
``answer_bounds``     the server, before it reads them   each round, after ``gather``              nothing
``regather``          the server                         each round, after all answers             ``gather``'s weights
``client_weights``    the server                         where a mean over all clients is made     by ``weighting``
``next_state``        the server                         each round, after all means               the labels
``deliver``           evaluation, export, final models   after each round                          the own cluster's row
``deliver_new``       evaluation of newcomers            after each round, and before the first    the first row
`Clusterer`
``__call__``          the server, where the grouping     round 0, after all uploads; before a run  required
                      needs one; a run's ``probes``      on made-up models, to fail early
``notes``             the server                         after ``__call__``                        nothing
``client_vectors``    newcomers, the record of round 0   after the last round; after round 0       None: nothing
`PseudoLabeler`
``trust``             each client without labels         round 0 or a last phase, before training  1, in full
``__call__``          each client without labels         before training; with ``renew = "epoch"`` required
                                                         before each epoch
`Objective`
``observe``           each client                        whenever its images are labelled          nothing
``__call__``          each client                        each step                                 required
``penalty``           each client                        each step                                 None: nothing
``collect``           each client                        each round, after training                nothing
``upload_bounds``     each server                        before it reads uploads                   nothing
``pool``              the server                         each round but the first, at its start    all, to all clients
``networks``          code that makes models             before round 0                            none
`Adaptation`
``networks``          code that makes models             before round 0                            none
``generators``        the same, if ``generates_models``  before round 0                            none
``at_size``           code that makes models             before round 0, where models have sizes   the same
``generate``          clients, if ``generates_models``   each round, before training; at test time refused
``loss``              each client; with ``adapts``       each step at test time; each training     required
                      clients that train                 step
====================  =================================  ========================================  ====================

Class variables and properties may be read at any time: ``grouping``, ``sends_models``, ``reports``, ``references``,
``queries_clients``, ``rows_are_models``, ``cached_models``, ``local_layers``, ``infers_gradients`` and
``averages_groups`` of an aggregator; ``oracle``, ``neighbour_metric``, ``norm_layers``, ``compares_models`` and
``layer_number`` of a clusterer; ``models``, ``renew``, ``mixes``, ``untrained_take_mean`` and ``selects_clients`` of a
labeler; ``anchors``, ``teachers``, ``views``, ``observes``, ``collects``, ``has_upload_bounds``, ``penalizes``,
``adapts``, ``feature_draws``, ``noise_per_image``, ``learning_rates``, ``local_networks`` and ``trained_on`` of an
objective; ``learning_rates``, ``generates_models``, ``lr``, ``steps``, ``patience``, ``candidates``, ``clip`` and
``weight_decay`` of an adaptation, which is in `fedwca.core.adaptation`.
``observes``, ``collects``, ``has_upload_bounds``, ``penalizes``, ``selects_clients``, ``averages_groups``,
``offers_in_round_0`` and ``has_server_step`` follow from which methods are overridden.

``answer``, ``answer_bounds`` and ``regather`` are called only where ``queries_clients`` is set and some clients have
labels and others have none: the new mean is sent to all of them before it is final. Where ``initial_state`` is
overridden (``offers_in_round_0``), ``offer``, ``blend`` and ``expected_reports`` are called in round 0 too.
"""

from __future__ import annotations

from fedwca.core.aggregator import Aggregator
from fedwca.core.clusterer import Clusterer
from fedwca.core.objective import Objective
from fedwca.core.pseudo_labeler import PseudoLabeler

__all__ = ["Aggregator", "Clusterer", "Objective", "PseudoLabeler"]
