"""What torch's `test_dataloader.py` and torchdata's `test_state_dict.py` pin of a loader.

For each behaviour the test of ours that holds it, or why it is meant not to be. Those of data
sets, samplers and collating alone are torch's own parts, which are used as they are.
"""

from __future__ import annotations

from typing import NamedTuple


class Behaviour(NamedTuple):
    """A row: tests are `file::function`, several with blanks between."""

    behaviour: str
    held: str = ""
    reason: str = ""


TORCH = [
    Behaviour(
        "batches in order, of items, of whole batches by __getitems__, and alone",
        "test_loader_states::test_sq1_batches_are_torchs_and_resume_anywhere",
    ),
    Behaviour(
        "the same with workers, also more than there are batches",
        "test_loader_states::test_sq1_workers_make_the_same_batches_and_states "
        "test_like_torch::test_more_workers_than_batches",
    ),
    Behaviour(
        "data that grow between epochs",
        "test_like_torch::test_data_that_grow_or_shrink_between_epochs",
    ),
    Behaviour(
        "each epoch is a new permutation of all items",
        "test_loader::test_sq2_each_epoch_has_its_own_permutation",
    ),
    Behaviour(
        "the permutation is the one that torch's RandomSampler would draw",
        reason="it has no small state; pass sampler=RandomSampler(...) for that order",
    ),
    Behaviour(
        "shuffling draws from the global generator",
        reason="states would depend on it; the order is of the seed, which manual_seed gives",
    ),
    Behaviour(
        "the order is reproducible by manual_seed or generator",
        "test_loader::test_sq2_each_epoch_has_its_own_permutation",
    ),
    Behaviour(
        "a generator's later seeds count",
        reason="its initial seed is the loader's, once, so that a state says which",
    ),
    Behaviour(
        "torch's samplers, replacement and generators of their own",
        "test_loader::test_sq2_torchs_samplers_repeat_themselves",
    ),
    Behaviour(
        "samplers of one's own, without a length, without an end, of any indices",
        "test_loader::test_sq2_a_sampler_is_iterated_over_whatever_its_indices_give "
        "test_loader::test_sq4_iterables_and_endless_samplers "
        "test_like_torch::test_large_indices",
    ),
    Behaviour(
        "sampler with shuffle, batch_sampler with batch_size, shuffle, sampler or drop_last: error",
        reason="SeqTools' loader has an order for them: batch_sampler, sampler, shuffle",
    ),
    Behaviour(
        "other wrong combinations of arguments are ValueErrors",
        "test_loader::test_sq1_wrong_arguments",
    ),
    Behaviour(
        "prefetch_factor and persistent_workers without workers are ValueErrors",
        reason="they mean nothing there and do no harm: num_workers=0 is for debugging",
    ),
    Behaviour(
        "what makes the order can't be assigned after construction",
        "test_samplers::test_what_makes_the_order_cannot_be_set_any_more",
    ),
    Behaviour(
        "other attributes can be, and count from the next iterator on",
        "test_samplers::test_other_attributes_can_be_set_and_count",
    ),
    Behaviour(
        "sampler and batch_sampler are there",
        "test_samplers::test_samplers_are_shown_as_torch_shows_them",
    ),
    Behaviour(
        "of an iterable, sampler is an endless one of None",
        reason="nobody can use it; it is None",
    ),
    Behaviour(
        "collating of all kinds, converting of items alone",
        "test_loader::test_sq4_collate_as_torch_does",
    ),
    Behaviour("data sets of torch", "test_like_torch::test_data_sets_of_torch"),
    Behaviour(
        "IterDataPipe and MapDataPipe",
        reason="torch has deprecated them; an IterDataPipe is read as the iterable that it is",
    ),
    Behaviour(
        "an iterable is read by every worker, in turns, and left out when it ends",
        "test_workers::test_an_iterable_is_read_in_the_workers_as_by_torch",
    ),
    Behaviour(
        "get_worker_info: id, num_workers, seed, dataset; None elsewhere",
        "test_workers::test_workers_of_data_by_index_know_who_they_are "
        "test_workers::test_an_iterable_is_read_in_the_workers_as_by_torch",
    ),
    Behaviour(
        "worker_init_fn may seed torch",
        "test_workers::test_a_seed_that_worker_init_fn_gives_torch_stays",
    ),
    Behaviour(
        "worker_init_fn may set affinity", "test_like_torch::test_affinity_that_worker_init_fn_sets"
    ),
    Behaviour("an error of worker_init_fn", "test_like_torch::test_an_error_of_worker_init_fn"),
    Behaviour(
        "workers differ in their seeds, which fit a tensor",
        "test_workers::test_worker_seeds_fit_torch",
    ),
    Behaviour(
        "draws are reproducible with workers",
        "test_workers::test_draws_are_those_of_the_batch_whichever_worker_makes_it",
    ),
    Behaviour(
        "all items of a worker see one torch.initial_seed()",
        reason="each batch has its own seed, so that it doesn't matter who makes it",
    ),
    Behaviour(
        "item i is made by worker i modulo num_workers",
        reason="the one that is free makes it; none waits for a slow one",
    ),
    Behaviour(
        "without workers draws are the program's",
        "test_workers::test_without_workers_draws_are_the_programs",
    ),
    Behaviour(
        "iterating takes one draw from the global generator",
        reason="a validation loader would change training; it is left alone: "
        "test_the_programs_generators_are_left_alone",
    ),
    Behaviour(
        "an error in a worker keeps its type, comes in its turn",
        "test_loader::test_sq28_errors_of_a_loader_are_the_batches_own "
        "test_workers::test_an_error_of_a_reader_is_raised_in_its_turn",
    ),
    Behaviour(
        "after an error the iterator is over",
        reason="it goes on with the next batch, as SeqTools' sequences do",
    ),
    Behaviour("a timeout", "test_like_torch::test_a_timeout"),
    Behaviour(
        "a worker that is killed is a RuntimeError", "test_like_torch::test_a_worker_that_is_killed"
    ),
    Behaviour(
        "no process is left when a loop is left or ends",
        "test_loader::test_sq1_collate_and_items_are_made_by_workers "
        "test_workers::test_readers_read_at_the_same_time_and_each_in_its_own_process",
    ),
    Behaviour(
        "two iterators of a loader at once, and a loader within a worker",
        "test_loader_states::test_sq1_two_loops_at_once_and_loops_that_are_left "
        "test_like_torch::test_a_loader_within_a_worker",
    ),
    Behaviour(
        "persistent workers keep their data set, also an iterable one",
        "test_workers::test_persistent_readers_go_on",
    ),
    Behaviour(
        "start methods by name and by context",
        "test_like_torch::test_start_methods_by_name_and_by_context",
    ),
    Behaviour("workers use one thread each", "test_like_torch::test_workers_use_one_thread_each"),
    Behaviour(
        "len, of iterables too",
        "test_loader::test_sq5_the_length_is_that_of_iterating "
        "test_like_torch::test_the_length_of_an_iterable_is_reckoned",
    ),
    Behaviour(
        "a warning where an iterable gives more than its len",
        reason="with several workers a right one gives more batches than are reckoned",
    ),
    Behaviour(
        "a warning where there are more workers than processors",
        reason="workers that wait for files or the network are well used",
    ),
    Behaviour(
        "in_order=False gives batches as they come",
        reason="their order would be no one's to repeat; it is accepted and changes nothing",
    ),
    Behaviour(
        "pinning, of one's own types too, and only of tensors",
        "test_loader::test_sq7_pinning_leaves_alone_what_is_no_tensor",
    ),
    Behaviour(
        "queues and events of multiprocessing in a data set",
        reason="these are shared by inheritance alone, which spawn and forkserver don't have",
    ),
    Behaviour(
        "open files of tensors: the sharing strategies of torch.multiprocessing",
        reason="tensors come through shared memory that is used again; no file stays open",
    ),
]

TORCHDATA = [
    Behaviour(
        "a resume from any batch gives the rest, with workers and without",
        "test_loader_states::test_sq1_batches_are_torchs_and_resume_anywhere "
        "test_loader_states::test_sq1_long_run_with_workers_in_flight",
    ),
    Behaviour(
        "an iterable's rest, by the states of data set or iterator, or read again",
        "test_fetching::test_iterables_go_on_from_their_own_states "
        "test_workers::test_an_iterable_is_read_in_the_workers_as_by_torch",
    ),
    Behaviour(
        "what has a state of its own is not read again", "test_fetching::test_nothing_is_read_again"
    ),
    Behaviour(
        "an iterator's state is kept once where it is the data set",
        "test_fetching::test_iterables_go_on_from_their_own_states",
    ),
    Behaviour(
        "samplers with states, and without",
        "test_fetching::test_samplers_go_on_from_their_own_states "
        "test_loader::test_sq2_torchs_samplers_repeat_themselves",
    ),
    Behaviour(
        "a data set by index has its state asked, without workers",
        "test_fetching::test_data_by_index_has_its_state_where_it_is_read_in_this_process",
    ),
    Behaviour(
        "and with workers, that of each copy",
        reason="any worker makes any batch, so copies have no place; draws need none, see above",
    ),
    Behaviour(
        "states of any type, tensors too",
        reason="a state is JSON; test_a_state_that_is_no_json_is_named_when_it_is_asked_for",
    ),
    Behaviour(
        "states go through JSON", "test_fetching::test_iterables_go_on_from_their_own_states"
    ),
    Behaviour(
        "random numbers go on where they were",
        "test_workers::test_what_readers_draw_is_the_same_wherever_a_resume_reads",
    ),
    Behaviour(
        "a state before the first batch, at the last, behind it, and of a loop under way",
        "test_like_torch::test_states_before_the_first_batch_and_after_the_last "
        "test_like_torch::test_a_loop_that_is_left_and_its_state_while_it_goes_on "
        "test_loader_states::test_sq1_the_end_of_an_epoch_is_the_start_of_the_next",
    ),
    Behaviour(
        "a state that was loaded is given back",
        "test_fetching::test_iterables_go_on_from_their_own_states",
    ),
    Behaviour(
        "epochs that data count go on, also without persistent workers",
        "test_fetching::test_iterables_go_on_from_their_own_states",
    ),
    Behaviour(
        "an epoch is whole also behind a state that stands at the end of its data",
        "test_fetching::test_epochs_follow_states_without_any_more_items",
    ),
    Behaviour(
        "another num_workers is an AssertionError",
        reason="a state resumes with any; that of readers says how many there are",
    ),
    Behaviour(
        "load_state_dict({}) is ignored",
        reason="what is no state is refused, or training would begin anew in silence",
    ),
    Behaviour(
        "snapshot_every_n_steps, and the keys of a state",
        reason="every state is exact; its form is that of all states of lazyckpt",
    ),
    Behaviour(
        "state_dict before the first iterator starts workers and asks them",
        reason="data is touched when it is read: the state says that nothing was",
    ),
    Behaviour(
        "in_order=False with checkpoints",
        reason="accepted and changes nothing, as above",
    ),
]

BEHAVIOURS = TORCH + TORCHDATA
