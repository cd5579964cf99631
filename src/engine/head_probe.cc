#include "engine/head_probe.h"

#include <algorithm>

#include "base/check.h"
#include "step/step_runner.h"

namespace lockstep::engine {

const char kProbeText[] =
    "Sure! Here are a few simple steps that you can follow to learn a new skill. First, set a clear goal and write it "
    "down. It is important to know what you want to achieve, because this helps you to stay motivated. Next, break the "
    "goal down into smaller tasks, and work on one of them every day. For example, if you want to learn how to play "
    "the guitar, you can start with a few basic chords and practice them for fifteen minutes a day. Finally, be "
    "patient and do not give up. It takes time to learn something new, and everyone makes mistakes at the beginning.";

Result<double> ProbeHead(step::StepRunner& runner, int draft, int sequence, std::span<const int32_t> tokens) {
  const int num =
      std::min<int>(static_cast<int>(tokens.size()),
                    std::min({step::kMaxLogitsRows, runner.draft_context(draft), runner.options().context}));
  LS_CHECK_GE(num, 3);
  step::DraftTree chain;
  chain.Reset(tokens[0]);
  for (int i = 1; i < num; ++i) chain.Add(i - 1, tokens[static_cast<size_t>(i)]);
  step::StepInput& in = runner.input();
  step::AddTree(in, sequence, chain, 0, runner.pages_per_sequence());
  in.sequences[0].sampling = {};
  in.save_taps = 1;
  LS_RETURN_IF_ERROR(runner.Run());
  const std::span<const int32_t> target(runner.output().tokens, static_cast<size_t>(num));
  const std::vector<int32_t> wanted(target.begin(), target.end());

  // Pair k reads the feature of position k and token k + 1, and names the token behind it: the model's at row k + 1.
  const int pairs = num - 1;
  step::StepInput& draft_in = runner.draft_input(draft);
  step::StepSequence& s = draft_in.sequences[draft_in.num_sequences++];
  s = {};
  s.kv = {0, sequence * runner.draft_pages_per_sequence(draft), sequence};
  for (int k = 0; k < pairs; ++k) {
    draft_in.rows[k] = {tokens[static_cast<size_t>(k) + 1], k, 0, k - 1, k, 1, k};
    draft_in.logits_rows[k] = k;
  }
  s.num_rows = s.num_logits_rows = draft_in.num_rows = draft_in.num_logits_rows = pairs;
  draft_in.fused = 1;
  LS_RETURN_IF_ERROR(runner.RunDraft(draft));
  int agreed = 0;
  for (int k = 0; k < pairs; ++k) {
    step::DraftCandidate best;
    if (runner.Candidates(draft, k, false, {&best, 1}) == 1 && best.token == wanted[static_cast<size_t>(k) + 1])
      ++agreed;
  }
  return static_cast<double>(agreed) / pairs;
}

}  // namespace lockstep::engine
