// Lets the attention kernels be included once more, in another namespace: for
// cuda_attention_kernels.h, so without a guard.
#undef QUIRE_ATTENTION_CUH_
#undef QUIRE_ATTENTION_FEED_CUH_
#undef QUIRE_ATTENTION_ROWS_CUH_
#undef QUIRE_ATTENTION_BODY_CUH_
#undef QUIRE_ATTENTION_RING_CUH_
#undef QUIRE_ATTENTION_STEPS_CUH_
#undef QUIRE_ATTENTION_WARPGROUP_CUH_
#undef QUIRE_ATTENTION_WIDE_CUH_
#undef QUIRE_ATTENTION_TILES_CUH_
#undef QUIRE_ATTENTION_SUMS_CUH_
#undef QUIRE_ATTENTION_WARP_CUH_
#undef QUIRE_ATTENTION_FEW_CUH_
#undef QUIRE_ATTENTION_PLAN_CUH_
