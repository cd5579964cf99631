#include "step/step_runner.h"

#include "base/check.h"

namespace lockstep::step {
namespace {

StepSequence& Append(StepInput& input, int sequence, int num_rows, int committed, int page_stride) {
  LS_CHECK_LT(input.num_sequences, kMaxStepSequences);
  LS_CHECK_LE(input.num_rows + num_rows, kMaxStepRows);
  StepSequence& s = input.sequences[input.num_sequences++];
  s.kv = {committed, sequence * page_stride, sequence};
  s.slot = sequence;
  s.first_row = input.num_rows;
  s.num_rows = num_rows;
  s.first_logits_idx = input.num_logits_rows;
  s.num_logits_rows = 0;
  return s;
}

void WantLogits(StepInput& input, StepSequence& s, int row) {
  LS_CHECK_LT(input.num_logits_rows, kMaxLogitsRows);
  input.rows[row].wants_logits = 1;
  input.logits_rows[input.num_logits_rows++] = row;
  ++s.num_logits_rows;
}

}  // namespace

void AddPrefill(StepInput& input, int sequence, std::span<const int32_t> tokens, int first_position, bool sample_last,
                int page_stride) {
  const int n = static_cast<int>(tokens.size());
  LS_CHECK_GE(n, 1);
  StepSequence& s = Append(input, sequence, n, first_position, page_stride);
  s.is_tree = 0;
  for (int i = 0; i < n; ++i) {
    const int row = s.first_row + i, position = first_position + i;
    input.rows[row] = {
        tokens[static_cast<size_t>(i)], position, input.num_sequences - 1, i == 0 ? -1 : row - 1, position, 0, 0};
  }
  input.num_rows += n;
  if (sample_last) WantLogits(input, s, input.num_rows - 1);
}

void AddTree(StepInput& input, int sequence, const DraftTree& tree, int committed, int page_stride) {
  StepSequence& s = Append(input, sequence, tree.num_rows(), committed, page_stride);
  s.is_tree = 1;
  for (int i = 0; i < tree.num_rows(); ++i) {
    const int row = s.first_row + i;
    const int parent = i == 0 ? -1 : s.first_row + tree.parents[i];
    const int position = i == 0 ? committed : input.rows[parent].position + 1;
    input.rows[row] = {tree.tokens[i], position, input.num_sequences - 1, parent, committed + i, 0, 0};
  }
  input.num_rows += tree.num_rows();
  for (int i = 0; i < tree.num_rows(); ++i) WantLogits(input, s, s.first_row + i);
}

}  // namespace lockstep::step
