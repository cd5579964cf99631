#include "model/registry.h"

#include "base/check.h"

#include "model/arch/dense_decoder.h"
#include "model/arch/eagle3.h"

namespace lockstep::model {
namespace {

constexpr Architecture kArchitectures[] = {
    {"llama", DenseDecoderForward},
    {"qwen2", DenseDecoderForward},
    {"qwen3", DenseDecoderForward},
};
// No model of its own: it never comes out of general.architecture.
constexpr Architecture kHead = {"eagle3", Eagle3Forward};

}  // namespace

const Architecture* FindArchitecture(std::string_view name) {
  for (const Architecture& a : kArchitectures) {
    if (name == a.name) return &a;
  }
  return nullptr;
}

const Architecture& ForwardOf(std::string_view name) {
  if (name == kHead.name) return kHead;
  const Architecture* found = FindArchitecture(name);
  LS_CHECK(found != nullptr);  // the config was read with the same table
  return *found;
}

std::string BuiltArchitectures() {
  std::string names;
  for (const Architecture& a : kArchitectures) names += (names.empty() ? "" : ", ") + std::string(a.name);
  return names;
}

}  // namespace lockstep::model
