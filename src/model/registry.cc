#include "model/registry.h"

#include "model/arch/llama.h"
#include "model/arch/qwen2.h"
#include "model/arch/qwen3.h"

namespace lockstep::model {
namespace {

constexpr Architecture kArchitectures[] = {
    {"llama", LlamaForward},
    {"qwen2", Qwen2Forward},
    {"qwen3", Qwen3Forward},
};

}  // namespace

const Architecture* FindArchitecture(std::string_view name) {
  for (const Architecture& a : kArchitectures) {
    if (name == a.name) return &a;
  }
  return nullptr;
}

std::string BuiltArchitectures() {
  std::string names;
  for (const Architecture& a : kArchitectures) names += (names.empty() ? "" : ", ") + std::string(a.name);
  return names;
}

}  // namespace lockstep::model
