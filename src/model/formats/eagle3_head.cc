#include "model/formats/eagle3_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "model/formats/content_hash.h"
#include "model/formats/eagle3_config.h"
#include "model/formats/eagle3_tensors.h"
#include "model/formats/gguf.h"
#include "model/formats/quantise.h"

namespace lockstep::model {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEmbedding = "token_embd.weight";
constexpr const char* kOutput = "output.weight";

class Eagle3Head : public WeightSource {
 public:
  Eagle3Head(std::unique_ptr<Safetensors> files, ModelConfig config, const WeightSource& target)
      : files_(std::move(files)), config_(std::move(config)), target_(target) {}

  const ModelConfig& config() const override { return config_; }
  std::string fingerprint() const override { return fingerprint_; }

  Result<TensorRef> Get(std::string_view name) const override {
    auto it = tensors_.find(name);
    if (it == tensors_.end()) {
      return NotFound(fmt::format("{}: tensor {}: missing", files_->path(), GgufFile::Shown(name)));
    }
    return it->second;
  }
  // What was quantised lies in memory, where nothing is to be done.
  void Fetch(std::span<const uint8_t> data) const override {
    if (files_->Holds(data)) return files_->Fetch(data);
    if (IsShared(data)) target_.Fetch(data);
  }
  void Drop(std::span<const uint8_t> data) const override {
    if (files_->Holds(data)) return files_->Drop(data);
    if (IsShared(data)) target_.Drop(data);
  }

  Status Load(const HeadTensors& tensors, const HeadOptions& options) {
    Hash(tensors);
    for (const auto& [name, t] : tensors) {
      if (name == "d2t" || name == "t2d") continue;
      LS_RETURN_IF_ERROR(Add(name, *t, options));
    }
    if (!config_.eagle3.own_embedding) LS_RETURN_IF_ERROR(Share(kEmbedding, kEmbedding));
    if (!tensors_.contains(kOutput)) {
      if (config_.tied_embeddings && config_.eagle3.own_embedding) {
        LS_RETURN_IF_ERROR(Add(kOutput, *tensors.find(kEmbedding)->second, options));
      } else {
        LS_RETURN_IF_ERROR(Share(target_.config().tied_embeddings ? kEmbedding : kOutput, kOutput));
      }
    }
    config_.tied_embeddings = false;  // output.weight always answers
    return OkStatus();
  }

 private:
  bool IsShared(std::span<const uint8_t> data) const {
    return std::any_of(shared_.begin(), shared_.end(), [&](std::span<const uint8_t> whole) {
      return data.data() >= whole.data() && data.data() + data.size() <= whole.data() + whole.size();
    });
  }

  Status Share(const char* name, const char* here) {
    LS_ASSIGN_OR_RETURN(TensorRef t, target_.Get(name));
    shared_.push_back({t.data, static_cast<size_t>(t.bytes)});
    t.name = here;
    tensors_.emplace(here, std::move(t));
    return OkStatus();
  }

  Status Add(const std::string& name, const SafetensorsTensor& t, const HeadOptions& options) {
    const bool is_matrix = t.shape.size() == 2;
    TensorRef ref{name, *t.type->dtype, is_matrix ? t.shape[0] : 1, t.shape.back(), t.data, t.bytes};
    if (name != kEmbedding) {
      const bool quantise =
          is_matrix && options.weight_dtype && ref.cols % GetDTypeInfo(*options.weight_dtype).block_elems == 0;
      LS_RETURN_IF_ERROR(quantise ? Quantise(t, *options.weight_dtype, &ref)
                                  : CheckValues(t, FindNotFinite(ref.dtype, t.data, t.num_elems()), ref.dtype));
    }
    tensors_.emplace(name, std::move(ref));
    return OkStatus();
  }

  Status CheckValues(const SafetensorsTensor& t, const std::optional<BadElement>& bad, DType type) const {
    if (!bad) return OkStatus();
    return CorruptFile(
        fmt::format("{}: tensor {}: element {} is {}{}", files_->FileOf(t), t.name, bad->index, bad->value,
                    std::isfinite(bad->value) ? fmt::format(", too large for {}", DTypeName(type)) : ""));
  }

  Status Quantise(const SafetensorsTensor& t, DType type, TensorRef* ref) {
    const DTypeInfo info = GetDTypeInfo(type);
    const std::span<const uint8_t> data(t.data, static_cast<size_t>(t.bytes));
    ref->bytes = t.num_elems() / info.block_elems * info.block_bytes;
    auto out = std::make_unique_for_overwrite<uint8_t[]>(ref->bytes);
    files_->Fetch(data);
    const auto bad = model::Quantise(*t.type->dtype, t.data, t.num_elems(), type, out.get());
    files_->Drop(data);
    ref->dtype = type;
    ref->data = out.get();
    owned_.push_back(std::move(out));
    return CheckValues(t, bad, type);
  }

  // Before anything is quantised: the same head has the same fingerprint, however it is read.
  void Hash(const HeadTensors& tensors) {
    ContentHash hash;
    hash.Sizes(config_);
    hash.Number(config_.eagle3.target_hidden);
    for (int layer : config_.eagle3.tap_layers) hash.Number(static_cast<uint64_t>(layer));
    hash.Number(config_.eagle3.norm_output);
    for (const auto& [name, t] : tensors) {
      hash.Text(name);
      hash.Text(t->type->name);
      for (uint64_t dim : t->shape) hash.Number(dim);
      hash.Samples({t->data, static_cast<size_t>(t->bytes)});
    }
    fingerprint_ = hash.Digits();
  }

  std::unique_ptr<Safetensors> files_;
  ModelConfig config_;
  const WeightSource& target_;
  std::map<std::string, TensorRef, std::less<>> tensors_;
  std::vector<std::span<const uint8_t>> shared_;  // of the target
  std::vector<std::unique_ptr<uint8_t[]>> owned_;
  std::string fingerprint_;
};

std::string ConfigPath(const Safetensors& files) {
  return (fs::path(files.files()[0]).parent_path() / "config.json").string();
}

}  // namespace

Result<std::unique_ptr<WeightSource>> OpenEagle3Head(const std::string& path, const WeightSource& target,
                                                     const HeadOptions& options) {
  LS_ASSIGN_OR_RETURN(auto files, Safetensors::Open(path));
  LS_ASSIGN_OR_RETURN(JsonConfig json, JsonConfig::Open(ConfigPath(*files)));
  LS_ASSIGN_OR_RETURN(ModelConfig config, Eagle3ConfigFromJson(json, &target.config()));
  LS_ASSIGN_OR_RETURN(HeadTensors tensors, FindHeadTensors(*files));
  LS_RETURN_IF_ERROR(CheckHeadTensors(*files, tensors, target.config().vocab, &config));
  auto head = std::make_unique<Eagle3Head>(std::move(files), std::move(config), target);
  LS_RETURN_IF_ERROR(head->Load(tensors, options));
  return std::unique_ptr<WeightSource>(std::move(head));
}

Result<Eagle3Summary> SummariseEagle3(const Safetensors& files) {
  Eagle3Summary out;
  LS_ASSIGN_OR_RETURN(JsonConfig json, JsonConfig::Open(ConfigPath(files)));
  LS_ASSIGN_OR_RETURN(out.config, Eagle3ConfigFromJson(json, nullptr));
  LS_ASSIGN_OR_RETURN(HeadTensors tensors, FindHeadTensors(files));
  LS_ASSIGN_OR_RETURN(uint64_t vocab, json.GetUint("vocab_size", 1, UINT32_MAX));
  LS_RETURN_IF_ERROR(CheckHeadTensors(files, tensors, vocab, &out.config));
  out.target_vocab = static_cast<uint32_t>(vocab);
  out.layer_prefix = tensors.find("blk.0.hidden_norm.weight")->second->name;
  out.layer_prefix.resize(out.layer_prefix.rfind("hidden_norm."));
  return out;
}

bool LooksLikeEagle3(const Safetensors& files) {
  return std::any_of(files.tensors().begin(), files.tensors().end(),
                     [](const SafetensorsTensor& t) { return t.name == "fc.weight" || t.name == "model.fc.weight"; });
}

}  // namespace lockstep::model
