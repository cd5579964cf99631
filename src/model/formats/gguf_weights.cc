#include <fmt/format.h>

#include "model/formats/gguf.h"
#include "model/formats/weight_source.h"

namespace lockstep::model {
namespace {

class GgufWeights : public WeightSource {
 public:
  GgufWeights(std::unique_ptr<GgufFile> file, ModelConfig config)
      : file_(std::move(file)), config_(std::move(config)) {}

  const ModelConfig& config() const override { return config_; }
  std::string fingerprint() const override { return Fingerprint(*file_, config_); }
  void Fetch(std::span<const uint8_t> data) const override { file_->Fetch(data); }
  void Drop(std::span<const uint8_t> data) const override { file_->Drop(data); }
  const GgufFile* gguf() const override { return file_.get(); }

  Result<TensorRef> Get(std::string_view name) const override {
    const GgufTensor* t = file_->Find(name);
    if (!t) return NotFound(fmt::format("{}: tensor {}: missing", file_->path(), GgufFile::Shown(name)));
    if (t->shape.size() > 2) {
      return Unsupported(
          fmt::format("{}: tensor {}: {} dimensions, at most 2 expected", file_->path(), t->name, t->shape.size()));
    }
    uint64_t rows = t->shape.size() == 2 ? t->shape[0] : 1;
    return TensorRef{t->name, t->dtype, rows, t->shape.back(), t->data, t->bytes};
  }

 private:
  std::unique_ptr<GgufFile> file_;
  ModelConfig config_;
};

}  // namespace

Result<std::unique_ptr<WeightSource>> OpenGgufWeights(const std::string& path) {
  LS_ASSIGN_OR_RETURN(auto file, GgufFile::Open(path));
  LS_ASSIGN_OR_RETURN(ModelConfig config, ConfigFromGguf(*file));
  LS_RETURN_IF_ERROR(CheckTensors(*file, config));
  return std::unique_ptr<WeightSource>(new GgufWeights(std::move(file), std::move(config)));
}

}  // namespace lockstep::model
