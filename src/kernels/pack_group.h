// The fast form of Pack for whole groups: all 16 outputs of a block at once, for the types whose bytes only move.
//
// Shapes:  rows, ahead: 16 file rows; group: one packed group as pack.h lays it out
// Units:   bytes
// Capture: no: load time only
// Cost:    bound by memory: a 4 x 4 transpose of 32-bit words for each 64 bytes
// Source:  the same bytes as Pack's loop over single outputs; both are held to the layout of pack.h (pack_group_test.cc)
#pragma once

#include <cstdint>

#include "kernels/pack.h"

namespace lockstep::kernels {

// Types that PackGroup packs: Q4_0, Q4_1, Q8_0.
bool HasPackGroup(DType dtype);

// Writes the k_count columns from k_begin of rows[0..15] to `group`, and asks memory for the same columns of the rows
// ahead[0..15], which come next: sixteen rows at a time are more streams than the hardware's prefetcher follows. Requires
// HasPackGroup(request.dtype).
void PackGroup(const PackRequest& request, const uint8_t* const* rows, const uint8_t* const* ahead, uint8_t* group);

}  // namespace lockstep::kernels
