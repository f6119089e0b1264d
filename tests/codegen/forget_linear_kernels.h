// The texts of linears, which are written for one configuration, can be included once more after
// this: for another, in a namespace of its own. No guard: it is included between any two of them.
#undef QUIRE_LINEAR_ACT_CUH_
#undef QUIRE_LINEAR_BLOCKS_RING_CUH_
#undef QUIRE_LINEAR_COLUMNS_CUH_
#undef QUIRE_LINEAR_CUH_
#undef QUIRE_LINEAR_DEQUANTIZE_CUH_
#undef QUIRE_LINEAR_E4M3_CUH_
#undef QUIRE_LINEAR_E4M3_NARROW_CUH_
#undef QUIRE_LINEAR_E4M3_WARPGROUP_CUH_
#undef QUIRE_LINEAR_FEW_BLOCKS_CUH_
#undef QUIRE_LINEAR_FEW_CUH_
#undef QUIRE_LINEAR_FINISH_CUH_
#undef QUIRE_LINEAR_NARROW_CUH_
#undef QUIRE_LINEAR_NORM_CUH_
#undef QUIRE_LINEAR_QUANTIZE_CUH_
#undef QUIRE_LINEAR_RING_CUH_
#undef QUIRE_LINEAR_RUNS_CUH_
#undef QUIRE_LINEAR_ROPE_CUH_
#undef QUIRE_LINEAR_TILE_CUH_
#undef QUIRE_LINEAR_UNITS_CUH_
#undef QUIRE_LINEAR_WARPGROUP_CUH_
