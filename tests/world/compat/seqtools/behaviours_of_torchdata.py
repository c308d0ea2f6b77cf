"""What torchdata's own tests pin of a loader: those of all files in `test/stateful_dataloader`.

Its `test_dataloader.py` is torch's for its own loader: see there, but for `enumerate`.
"""

from __future__ import annotations

from tests.world.compat.seqtools.behaviours import Behaviour

TORCHDATA = [
    Behaviour(
        "a resume from any batch gives the rest, with workers and without",
        theirs="test_no_mp test_mp_x test_mp_pw",
        held=(
            "test_loader_states::test_sq1_batches_are_torchs_and_resume_anywhere "
            "test_loader_states::test_sq1_long_run_with_workers_in_flight"
        ),
    ),
    Behaviour(
        "an iterable's rest, by the states of data set or iterator, or read again",
        theirs=(
            "TestStatefulDataLoaderIterable TestStatefulDataLoaderGenerator "
            "TestStatefulDataLoaderGeneratorNoState"
        ),
        held=(
            "test_fetching::test_iterables_go_on_from_their_own_states "
            "test_workers::test_an_iterable_is_read_in_the_workers_as_by_torch"
        ),
    ),
    Behaviour(
        "what has a state of its own is not read again",
        held="test_fetching::test_nothing_is_read_again",
    ),
    Behaviour(
        "an iterator's state is kept once where it is the data set",
        theirs="TestDatasetIteratorStateDuplication TestStatefulDataLoaderIterable2",
        held="test_fetching::test_iterables_go_on_from_their_own_states",
    ),
    Behaviour(
        "streams of Hugging Face, with their states",
        theirs="test_hugging_face.py",
        held=(
            "test_like_torch_loaders::test_streams_of_hugging_face_go_on_from_their_states "
            "test_fetching::test_epochs_follow_states_without_any_more_items"
        ),
    ),
    Behaviour(
        "samplers with states, and without",
        theirs=(
            "TestStatefulSampler TestStatefulDataLoaderMap test_dataloader_state_dict "
            "test_data_order_with_shuffle test_data_order_without_shuffle"
        ),
        held=(
            "test_fetching::test_samplers_go_on_from_their_own_states "
            "test_loader::test_sq2_torchs_samplers_repeat_themselves"
        ),
    ),
    Behaviour(
        "ranks of a sampler share the data, with the last batch and without",
        theirs="test_drop_last_effect test_data_distribution_across_replicas",
        held="test_like_torch_loaders::test_ranks_share_the_items_without_the_last",
    ),
    Behaviour(
        "what StatefulDistributedSampler alone does: attributes, its state, wrong ones",
        theirs=(
            "test_initialization_StatefulDistributedSampler test_sampler_state_dict "
            "test_sampler_load_state_dict test_sampler_next_yielded"
        ),
        reason="it is torchdata's own part, used as it is; no loader has a part in it",
    ),
    Behaviour(
        "a data set by index has its state asked, without workers",
        theirs="TestStatefulDataLoaderMap",
        held="test_fetching::test_data_by_index_has_its_state_where_it_is_read_in_this_process",
    ),
    Behaviour(
        "and with workers, that of each copy",
        theirs="TestStatefulDataLoaderMap",
        reason="any worker makes any batch, so copies have no place; draws need none, see above",
    ),
    Behaviour(
        "states of any type, tensors too",
        theirs="TestStatefulDataLoaderIterable",
        reason="a state is JSON; test_a_state_that_is_no_json_is_named_when_it_is_asked_for",
    ),
    Behaviour(
        "states go through JSON",
        theirs="TestJsonSerDe",
        held="test_fetching::test_iterables_go_on_from_their_own_states",
    ),
    Behaviour(
        "random numbers go on where they were",
        theirs="test_random_state",
        held="test_workers::test_what_readers_draw_is_the_same_wherever_a_resume_reads",
    ),
    Behaviour(
        "a state before the first batch, at the last, behind it, and of a loop under way",
        theirs="TestSnapshotZero TestSnapshotEnd",
        held=(
            "test_like_torch::test_states_before_the_first_batch_and_after_the_last "
            "test_like_torch::test_a_loop_that_is_left_and_its_state_while_it_goes_on "
            "test_loader_states::test_sq1_the_end_of_an_epoch_is_the_start_of_the_next"
        ),
    ),
    Behaviour(
        "a loader under way goes to a state, and on from there",
        theirs="test_map_iterrupted_shuffle",
        held="test_like_torch::test_a_loop_that_is_left_and_its_state_while_it_goes_on",
    ),
    Behaviour(
        "a state soon after a resume, before each worker has given a batch",
        theirs="TestFastStateDictRequest",
        held="test_like_torch_loaders::test_a_state_soon_after_a_resume",
    ),
    Behaviour(
        "a state that was loaded is given back",
        held="test_fetching::test_iterables_go_on_from_their_own_states",
    ),
    Behaviour(
        "epochs that data count go on, also without persistent workers",
        theirs="TestSnapshotEnd",
        held="test_fetching::test_iterables_go_on_from_their_own_states",
    ),
    Behaviour(
        "an epoch is whole also behind a state that stands at the end of its data",
        theirs="TestSnapshotEnd",
        held="test_fetching::test_epochs_follow_states_without_any_more_items",
    ),
    Behaviour(
        "enumerate() numbers batches from where a state stands; the builtin from 0",
        theirs="TestStatefulDataLoaderEnumerate",
        held="test_like_torch_loaders::test_batches_are_numbered_from_where_a_state_stands",
    ),
    Behaviour(
        "torch's own loader beside it gives the same",
        theirs="test_two_dataloaders",
        held="test_like_torch_loaders::test_loaders_at_once_and_torchs_beside_them",
    ),
    Behaviour(
        "another num_workers is an AssertionError",
        theirs="test_num_workers_mismatch",
        reason="a state resumes with any; that of readers says how many there are",
    ),
    Behaviour(
        "before the first iterator the state is {}, and load_state_dict({}) is ignored",
        theirs="test_num_workers_mismatch",
        reason=(
            "a state says whose it is from the first on; what is none is refused, or training "
            "would begin anew in silence"
        ),
    ),
    Behaviour(
        "snapshot_every_n_steps, and the keys of a state",
        theirs="test_mp_every_n_steps test_fast_state_dict_request_skip_steps",
        reason="every state is exact; its form is that of all states of lazyckpt",
    ),
    Behaviour(
        "how states of workers are flattened and sent as differences",
        theirs="test_incremental_state.py",
        reason="it is torchdata's inside; here the place of each worker comes with its batches",
    ),
    Behaviour(
        "state_dict before the first iterator starts workers and asks them",
        reason="data is touched when it is read: the state says that nothing was",
    ),
    Behaviour(
        "spawn_worker_start_parallelism: how many workers are started at once",
        theirs="test_worker_start.py",
        reason="there is no such argument: a worker that has started works while others start",
    ),
    Behaviour(
        "states of workers are taken apart, and put together for more workers",
        theirs="test_state_parser.py",
        reason="torchdata has dropped it; a state resumes with any num_workers",
    ),
    Behaviour(
        "in_order=False with checkpoints",
        reason="accepted and changes nothing, as above",
    ),
    Behaviour(
        "datapipes are imported when they are asked for",
        theirs="test_lazy_imports",
        reason="that is a promise of torchdata's package alone",
    ),
]
