"""What torch's own tests pin of a loader, and its data sets: those of `test/test_dataloader.py`."""

from __future__ import annotations

from tests.world.compat.seqtools.behaviours import Behaviour

TORCH = [
    Behaviour(
        "batches in order, of items, of whole batches by __getitems__, and alone",
        theirs="test_sequential_batch test_sequential_nonbatch test_getitems",
        held="test_loader_states::test_sq1_batches_are_torchs_and_resume_anywhere",
    ),
    Behaviour(
        "the same with workers, also more than there are batches",
        theirs="test_sequential_workers test_seqential_batch_workers",
        held=(
            "test_loader_states::test_sq1_workers_make_torchs_batches_and_the_same_states "
            "test_like_torch::test_more_workers_than_batches"
        ),
    ),
    Behaviour(
        "prefetch_factor decides what is ready, and nothing else",
        theirs="test_seqential_batch_workers_prefetch test_shuffle_batch_workers_prefetch",
        held="test_like_torch_loaders::test_what_is_ready_ahead_changes_nothing",
    ),
    Behaviour(
        "a list and a tuple of a loader; alone, items stay what they are",
        theirs="test_builtin_collection_conversion",
        held="test_like_torch_loaders::test_a_list_and_a_tuple_of_a_loader",
    ),
    Behaviour(
        "a sampler of whole batches without batching, whose list data are asked for at once",
        theirs="test_bulk_loading_nobatch",
        held="test_like_torch_loaders::test_a_sampler_of_batches_without_batching",
    ),
    Behaviour(
        "data are asked for plain ints",
        theirs="test_splits_indexing_type",
        held="test_like_torch_loaders::test_data_are_asked_for_plain_ints",
    ),
    Behaviour(
        "data that grow between epochs",
        theirs="test_growing_dataset",
        held="test_like_torch::test_data_that_grow_or_shrink_between_epochs",
    ),
    Behaviour(
        "each epoch is a new permutation of all items",
        theirs=(
            "test_shuffle test_shuffle_batch test_shuffle_batch_none test_shuffle_workers "
            "test_shuffle_batch_workers"
        ),
        held="test_loader::test_sq2_each_epoch_has_its_own_permutation",
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
        theirs="test_shuffle_reproducibility",
        held="test_loader::test_sq2_a_seed_is_torchs_generators",
    ),
    Behaviour(
        "a generator's later seeds count",
        reason="its initial seed is the loader's, once, so that a state says which",
    ),
    Behaviour(
        "torch's samplers, replacement and generators of their own",
        theirs="test_random_sampler test_sampler_reproducibility",
        held="test_loader::test_sq2_torchs_samplers_repeat_themselves",
    ),
    Behaviour(
        "the length of a sampler is that of the loader, in batches",
        theirs=(
            "test_random_sampler_len_with_replacement test_random_sampler_len_without_replacement"
        ),
        held=(
            "test_loader::test_sq2_a_sampler_is_iterated_over_whatever_its_indices_give "
            "test_like_torch_loaders::test_a_sampler_of_batches_without_batching"
        ),
    ),
    Behaviour(
        "ranks with drop_last have no item twice",
        theirs="test_duplicating_data_with_drop_last",
        held="test_like_torch_loaders::test_ranks_share_the_items_without_the_last",
    ),
    Behaviour(
        "samplers of one's own, without a length, without an end, of any indices",
        theirs="test_sampler test_batch_sampler",
        held=(
            "test_loader::test_sq2_a_sampler_is_iterated_over_whatever_its_indices_give "
            "test_loader::test_sq4_iterables_and_endless_samplers "
            "test_like_torch::test_large_indices "
            "test_loader_states::test_sq1_workers_make_torchs_batches_and_the_same_states"
        ),
    ),
    Behaviour(
        "sampler with shuffle, batch_sampler with batch_size, shuffle, sampler or drop_last: error",
        theirs="test_invalid_ctor_args_combinations",
        reason="SeqTools' loader has an order for them: batch_sampler, sampler, shuffle",
    ),
    Behaviour(
        "other wrong combinations of arguments are ValueErrors",
        theirs="test_invalid_ctor_args_combinations",
        held="test_loader::test_sq1_wrong_arguments",
    ),
    Behaviour(
        "a start method that is none is a ValueError at once",
        theirs="test_invalid_ctor_args_combinations",
        held="test_like_torch_loaders::test_a_start_method_that_is_none",
    ),
    Behaviour(
        "prefetch_factor, persistent_workers and multiprocessing_context without workers: "
        "ValueError",
        theirs="test_invalid_ctor_args_combinations",
        reason="they mean nothing there and do no harm: num_workers=0 is for debugging",
    ),
    Behaviour(
        "what makes the order can't be assigned after construction",
        theirs="test_invalid_assign_after_init",
        held="test_samplers::test_what_makes_the_order_cannot_be_set_any_more",
    ),
    Behaviour(
        "other attributes can be, and count from the next iterator on",
        held="test_samplers::test_other_attributes_can_be_set_and_count",
    ),
    Behaviour(
        "sampler and batch_sampler are there",
        held="test_samplers::test_samplers_are_shown_as_torch_shows_them",
    ),
    Behaviour(
        "of an iterable, sampler is an endless one of None",
        reason="nobody can use it; it is None",
    ),
    Behaviour(
        "DataLoader[T] stands in annotations",
        theirs="test_typing",
        held="test_loader::test_sq1_it_may_stand_in_annotations",
    ),
    Behaviour(
        "collating of all kinds, converting of items alone",
        theirs=(
            "test_numpy test_numpy_scalars test_default_convert_mapping_keep_type "
            "test_default_convert_sequence_keep_type "
            "test_default_convert_sequence_dont_keep_type test_default_collate_dtype "
            "test_default_collate_mapping_keep_type test_default_collate_sequence_keep_type "
            "test_default_collate_sequence_dont_keep_type "
            "test_default_collate_bad_numpy_types test_default_collate_numpy_memmap "
            "test_default_collate_bad_sequence_type test_dataloader_with_namedtuple"
        ),
        held="test_loader::test_sq4_collate_as_torch_does",
    ),
    Behaviour(
        "in a worker batches are collated in shared memory",
        theirs="test_default_collate_shared_tensor",
        held="test_like_torch_loaders::test_in_a_worker_batches_are_collated_in_shared_memory",
    ),
    Behaviour(
        "nested tensors come from workers; the standard collate refuses them",
        theirs="test_nested_tensor_multiprocessing",
        held="test_like_torch_loaders::test_nested_tensors",
    ),
    Behaviour(
        "data sets of torch",
        theirs=(
            "test_len test_getitem test_getitem_1d test_single_tensor test_many_tensors "
            "test_single test_slicing_of_subset_of_dataset test_slicing_of_subset_of_subset"
        ),
        held="test_like_torch::test_data_sets_of_torch",
    ),
    Behaviour(
        "what torch's data sets and samplers alone do: lengths, slices, splits, errors",
        theirs=(
            "test_lengths_must_equal_dataset_size test_splits_have_correct_size "
            "test_splits_are_mutually_exclusive test_splits_reproducibility "
            "test_incomplete_fractional_splits test_splits_generator test_empty test_mixed "
            "test_size_mismatch test_getitems_raises_index_error test_getitems_value_error "
            "test_concat_two_singletons test_concat_two_non_singletons "
            "test_concat_two_non_singletons_with_empty test_concat_raises_index_error "
            "test_add_dataset test_iterable_dataset_err test_distributed_sampler_invalid_rank"
        ),
        reason="they are torch's own parts, used as they are; no loader has a part in it",
    ),
    Behaviour(
        "iterables in a chain",
        theirs="test_chain_iterable_style_dataset",
        held="test_like_torch_loaders::test_chained_iterables",
    ),
    Behaviour(
        "IterDataPipe and MapDataPipe",
        theirs=(
            "test_multiprocessing_iterdatapipe test_multiprocessing_iterdatapipe_with_dill "
            "test_shuffler_iterdatapipe"
        ),
        reason="torch has deprecated them; an IterDataPipe is read as the iterable that it is",
    ),
    Behaviour(
        "an iterable is read by every worker, in turns, and left out when it ends",
        theirs=(
            "test_iterable_style_dataset test_multi_epochs_reproducibility "
            "test_in_order_iterable_ds"
        ),
        held="test_workers::test_an_iterable_is_read_in_the_workers_as_by_torch",
    ),
    Behaviour(
        "get_worker_info: id, num_workers, seed, dataset; None elsewhere",
        theirs="test_get_worker_info",
        held=(
            "test_workers::test_workers_of_data_by_index_know_who_they_are "
            "test_workers::test_an_iterable_is_read_in_the_workers_as_by_torch"
        ),
    ),
    Behaviour(
        "worker_init_fn may seed torch",
        theirs="test_worker_init_fn",
        held="test_workers::test_a_seed_that_worker_init_fn_gives_torch_stays",
    ),
    Behaviour(
        "worker_init_fn may set affinity",
        theirs="test_set_affinity_in_worker_init",
        held="test_like_torch::test_affinity_that_worker_init_fn_sets",
    ),
    Behaviour(
        "an error of worker_init_fn, or of an iterable's __iter__",
        theirs="test_error_in_init",
        held=(
            "test_like_torch::test_an_error_of_worker_init_fn "
            "test_like_torch_loaders::test_an_error_of_an_iterables_iter"
        ),
    ),
    Behaviour(
        "workers differ in their seeds, which fit a tensor",
        theirs="test_worker_seed",
        held=(
            "test_workers::test_worker_seeds_fit_torch "
            "test_workers::test_draws_are_those_of_the_batch_whichever_worker_makes_it"
        ),
    ),
    Behaviour(
        "draws are reproducible with workers",
        theirs="test_worker_seed_reproducibility",
        held="test_workers::test_draws_are_those_of_the_batch_whichever_worker_makes_it",
    ),
    Behaviour(
        "NumPy's generator is seeded by the numbers that torch makes of its seed",
        theirs="test_numpy_gen_state",
        reason="they say which worker it is; here each batch has a seed, whoever makes it",
    ),
    Behaviour(
        "all items of a worker see one torch.initial_seed()",
        reason="each batch has its own seed, so that it doesn't matter who makes it",
    ),
    Behaviour(
        "item i is made by worker i modulo num_workers",
        theirs="test_ind_worker_queue test_in_order_index_ds",
        reason="the one that is free makes it; none waits for a slow one",
    ),
    Behaviour(
        "without workers draws are the program's",
        held="test_workers::test_without_workers_draws_are_the_programs",
    ),
    Behaviour(
        "iterating takes one draw from the global generator",
        reason=(
            "a validation loader would change training; it is left alone: "
            "test_the_programs_generators_are_left_alone"
        ),
    ),
    Behaviour(
        "an error in a worker keeps its type, comes in its turn",
        held=(
            "test_loader::test_sq28_errors_of_a_loader_are_the_batches_own "
            "test_workers::test_an_error_of_a_reader_is_raised_in_its_turn"
        ),
    ),
    Behaviour(
        "each batch of data by index may fail, and the next one is tried",
        theirs="test_error test_error_workers",
        held="test_like_torch_loaders::test_each_batch_may_fail_and_the_next_one_is_tried",
    ),
    Behaviour(
        "after an error the iterator of an iterable is over",
        reason="it tries again, so that nothing is left out in silence",
    ),
    Behaviour(
        "a timeout",
        theirs="test_timeout",
        held="test_like_torch::test_a_timeout",
    ),
    Behaviour(
        "a worker that is killed is a RuntimeError",
        theirs="test_segfault",
        held="test_like_torch::test_a_worker_that_is_killed",
    ),
    Behaviour(
        "torch's threads, used before a fork, don't kill workers",
        theirs="test_no_segfault test_conv_after_fork",
        held="test_like_torch_loaders::test_torchs_threads_before_a_fork",
    ),
    Behaviour(
        "no process is left when a loop is left or ends",
        theirs="test_partial_workers test_iterable_style_dataset",
        held=(
            "test_loader::test_sq1_collate_and_items_are_made_by_workers "
            "test_workers::test_readers_read_at_the_same_time_and_each_in_its_own_process"
        ),
    ),
    Behaviour(
        "a program ends when its loop is left or fails, though it holds the iterator",
        theirs="test_large_sampler_indices test_early_exit test_proper_exit",
        held="test_like_torch_loaders::test_a_loop_that_is_left_ends_the_program",
    ),
    Behaviour(
        "workers end with a program that is killed",
        theirs="test_proper_exit",
        held="../../executors/pools/test_process_ends::test_a_process_with_an_open_run_ends",
    ),
    Behaviour(
        "two iterators of a loader at once, and a loader within a worker",
        held=(
            "test_loader_states::test_sq1_two_loops_at_once_and_loops_that_are_left "
            "test_like_torch::test_a_loader_within_a_worker"
        ),
    ),
    Behaviour(
        "several loaders at once",
        theirs="test_multiple_dataloaders",
        held="test_like_torch_loaders::test_loaders_at_once_and_torchs_beside_them",
    ),
    Behaviour(
        "persistent workers keep their data set, also an iterable one",
        theirs="test_dataset_not_reset",
        held=(
            "test_like_torch_loaders::test_persistent_workers_keep_the_data_that_they_began_with "
            "test_workers::test_persistent_readers_go_on"
        ),
    ),
    Behaviour(
        "start methods by name and by context",
        theirs="test_multiprocessing_contexts",
        held="test_like_torch::test_start_methods_by_name_and_by_context",
    ),
    Behaviour(
        "workers use one thread each",
        held="test_like_torch::test_workers_use_one_thread_each",
    ),
    Behaviour(
        "len, of iterables too",
        theirs="test_len test_iterabledataset_len",
        held=(
            "test_loader_states::test_sq1_batches_are_torchs_and_resume_anywhere "
            "test_like_torch::test_the_length_of_an_iterable_is_reckoned"
        ),
    ),
    Behaviour(
        "a warning where an iterable gives more than its len",
        theirs="test_iterable_style_dataset",
        reason="with several workers a right one gives more batches than are reckoned",
    ),
    Behaviour(
        "a warning where there are more workers than processors",
        theirs="test_excessive_thread_creation_warning",
        reason="workers that wait for files or the network are well used",
    ),
    Behaviour(
        "in_order=False gives batches as they come",
        theirs="test_out_of_order_index_ds test_out_of_order_iterable_ds",
        reason="their order would be no one's to repeat; it is accepted and changes nothing",
    ),
    Behaviour(
        "pinning, of one's own types too, and only of tensors",
        theirs=(
            "test_sequential_pin_memory test_shuffle_pin_memory test_pin_memory "
            "test_custom_batch_pin test_custom_batch_pin_worker"
        ),
        held="test_loader::test_sq7_pinning_leaves_alone_what_is_no_tensor",
    ),
    Behaviour(
        "pin_memory_device alone pins nothing",
        theirs="test_pin_memory_device test_pin_memory_with_only_device",
        held="test_loader::test_sq7_without_a_device_pinning_changes_nothing",
    ),
    Behaviour(
        "queues and events of multiprocessing in a data set",
        theirs="test_proper_exit test_worker_seed",
        reason="these are shared by inheritance alone, which spawn and forkserver don't have",
    ),
    Behaviour(
        "open files of tensors: the sharing strategies of torch.multiprocessing",
        theirs="test_fd_limit_exceeded",
        reason="tensors come through shared memory that is used again; no file stays open",
    ),
]
