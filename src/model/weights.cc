#include "model/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "base/bits.h"
#include "kernels/pack.h"

namespace lockstep::model {

struct RankWeights::Job {
  kernels::PackRequest request;
  uint8_t* destination;
};

RankWeights::RankWeights() = default;
RankWeights::~RankWeights() = default;

// Walks the model twice over one list of places: first to add up the bytes, then to hand out addresses.
class RankWeights::Planner {
 public:
  Planner(const WeightSource& source, const ShardPlan& plan, int rank, RankWeights* out)
      : source_(source), config_(source.config()), plan_(plan), rank_(rank), shard_(plan.ranks[rank]), out_(out) {}

  Status Run() {
    LS_RETURN_IF_ERROR(Walk());
    // A rank without a part of a draft has norms only; the address of its empty arena still says "second walk".
    auto memory = device::cpu::Memory::Allocate(static_cast<size_t>(std::max<int64_t>(used_, 64)), "weights");
    if (!memory.ok()) return memory.status();
    out_->memory_ = std::move(memory).value();
    base_ = reinterpret_cast<uint8_t*>(out_->memory_.data());
    // Norms lie apart: written here, among the matrices they would touch nearly all pages of these for one thread.
    out_->norms_.resize(static_cast<size_t>(norm_elems_));
    out_->total_bytes_ = used_ + norm_elems_ * 4;
    used_ = norm_elems_ = 0;
    return Walk();
  }

 private:
  Status Walk() {
    const int heads_k = shard_.q_heads.count() * static_cast<int>(config_.head_dim);
    LS_ASSIGN_OR_RETURN(out_->embedding, source_.Get("token_embd.weight"));
    if (config_.arch == kHeadArch) LS_RETURN_IF_ERROR(Head());
    out_->layers.resize(config_.num_layers);
    for (uint32_t i = 0; i < config_.num_layers; ++i) {
      LayerWeights& layer = out_->layers[i];
      auto name = [i](const char* part) { return fmt::format("blk.{}.{}.weight", i, part); };
      LS_RETURN_IF_ERROR(Norm(name(config_.arch == kHeadArch ? "hidden_norm" : "attn_norm"), &layer.attention_norm));
      LS_RETURN_IF_ERROR(Heads(name("attn_q"), shard_.q_heads, config_.rope_interleaved, &layer.q));
      LS_RETURN_IF_ERROR(Heads(name("attn_k"), shard_.kv_heads, config_.rope_interleaved, &layer.k));
      LS_RETURN_IF_ERROR(Heads(name("attn_v"), shard_.kv_heads, false, &layer.v));
      if (config_.qkv_bias) {
        auto bias = [i](const char* part) { return fmt::format("blk.{}.{}.bias", i, part); };
        LS_RETURN_IF_ERROR(Bias(bias("attn_q"), shard_.q_heads, &layer.q_bias));
        LS_RETURN_IF_ERROR(Bias(bias("attn_k"), shard_.kv_heads, &layer.k_bias));
        LS_RETURN_IF_ERROR(Bias(bias("attn_v"), shard_.kv_heads, &layer.v_bias));
      }
      if (config_.qk_norm) {
        LS_RETURN_IF_ERROR(Norm(name("attn_q_norm"), &layer.head_norms.q));
        LS_RETURN_IF_ERROR(Norm(name("attn_k_norm"), &layer.head_norms.k));
      }
      LS_RETURN_IF_ERROR(Row(name("attn_output"), shard_.q_heads.begin * int64_t{config_.head_dim}, heads_k,
                             plan_.attention_tree, &RankShard::attention,
                             plan_.heads_per_unit * static_cast<int>(config_.head_dim), &layer.attention_out));
      LS_RETURN_IF_ERROR(Norm(name("ffn_norm"), &layer.mlp_norm));
      LS_RETURN_IF_ERROR(Column(name("ffn_gate"), shard_.ffn, &layer.gate));
      LS_RETURN_IF_ERROR(Column(name("ffn_up"), shard_.ffn, &layer.up));
      LS_RETURN_IF_ERROR(Row(name("ffn_down"), shard_.ffn.begin, shard_.ffn.count(), plan_.mlp_tree, &RankShard::mlp,
                             kBlock, &layer.down));
    }
    LS_RETURN_IF_ERROR(Norm("output_norm.weight", &out_->output_norm));
    return Column(config_.tied_embeddings ? "token_embd.weight" : "output.weight", shard_.vocab, &out_->output);
  }

  Status Head() {
    HeadWeights& head = out_->head;
    const Eagle3Config& c = config_.eagle3;
    if (c.fc_norm) {
      head.tap_norms.resize(c.tap_layers.size());
      for (size_t i = 0; i < head.tap_norms.size(); ++i)
        LS_RETURN_IF_ERROR(Norm(fmt::format("fc_norm.{}.weight", i), &head.tap_norms[i]));
    }
    if (c.norm_before_fc) LS_RETURN_IF_ERROR(Norm("fc_input_norm.weight", &head.taps_norm));
    LS_RETURN_IF_ERROR(
        Row("fc.weight", shard_.fc.begin, shard_.fc.count(), plan_.taps_tree, &RankShard::taps, kBlock, &head.fc));
    if (source_.Get("fc.bias").ok()) LS_RETURN_IF_ERROR(Norm("fc.bias", &head.fc_bias));
    return Norm("blk.0.embd_norm.weight", &head.embedding_norm);
  }

  uint8_t* Take(int64_t bytes) {
    uint8_t* p = base_ == nullptr ? nullptr : base_ + used_;
    used_ += AlignUp<int64_t>(bytes, 64);
    return p;
  }

  Status Norm(const std::string& name, const float** out) {
    LS_ASSIGN_OR_RETURN(TensorRef t, source_.Get(name));
    if (base_ != nullptr) {  // zeros pad the row
      float* p = &out_->norms_[static_cast<size_t>(norm_elems_)];
      kernels::DequantRow(t.dtype, t.data, static_cast<int64_t>(t.cols), p);
      *out = p;
    }
    norm_elems_ += AlignUp<int64_t>(static_cast<int64_t>(t.cols), 16);
    return OkStatus();
  }

  // The elements of whole heads. Only architectures whose files rotate halves have biases, so none is permuted.
  Status Bias(const std::string& name, UnitRange heads, ColumnBias* out) {
    LS_ASSIGN_OR_RETURN(TensorRef t, source_.Get(name));
    const int64_t dh = config_.head_dim, count = heads.count() * dh;
    auto* p = reinterpret_cast<float*>(Take(AlignUp<int64_t>(count, 16) * 4));
    if (p != nullptr) {
      kernels::DequantRow(t.dtype, t.data + heads.begin * dh * GetDTypeInfo(t.dtype).block_bytes, count, p);
    }
    *out = {p, static_cast<int>(CeilDiv<int64_t>(count, 16))};
    return OkStatus();
  }

  Status Matrix(const TensorRef& t, kernels::PackRequest request, kernels::PackedMatrix* out) {
    if (request.num_outputs == 0 || request.k_count == 0) {  // a rank without a part of a draft
      *out = {};
      return OkStatus();
    }
    if (IsQuantised(t.dtype) && (request.k_begin % kBlock != 0 || request.k_count % kBlock != 0)) {
      return Unsupported(fmt::format("tensor {}: {} columns from {} do not align with blocks of {}", t.name,
                                     request.k_count, request.k_begin, kBlock));
    }
    request.dtype = t.dtype;
    request.source = t.data;
    request.source_cols = static_cast<int64_t>(t.cols);
    int64_t bytes = kernels::PackedBytes(t.dtype, request.num_outputs, request.k_count, request.k_begin);
    uint8_t* destination = Take(bytes);
    if (base_ != nullptr) {
      *out = kernels::Pack(request, destination, 0, 0);
      out_->matrix_bytes_ += bytes;
      out_->jobs_.push_back({std::move(request), destination});
    }
    return OkStatus();
  }

  static kernels::LeafPlan SingleLeaf(int k) {
    kernels::LeafPlan plan = {};
    plan.num_leaves = 1;
    plan.k_end[0] = k;
    return plan;
  }

  Status Column(const std::string& name, UnitRange rows, ColumnLinear* out) {
    LS_ASSIGN_OR_RETURN(TensorRef t, source_.Get(name));
    kernels::PackRequest request = {};
    request.num_outputs = rows.count();
    request.first_row = rows.begin;
    request.k_count = static_cast<int>(t.cols);
    out->plan = SingleLeaf(request.k_count);
    return Matrix(t, std::move(request), &out->weight);
  }

  // Rows of whole heads. A file that rotates adjacent pairs is put into halves here, once, so that there is one rope
  // kernel: output i of a head is file row 2i, output Dh/2 + i is file row 2i + 1.
  Status Heads(const std::string& name, UnitRange heads, bool interleaved, ColumnLinear* out) {
    LS_ASSIGN_OR_RETURN(TensorRef t, source_.Get(name));
    const int dh = static_cast<int>(config_.head_dim), first = heads.begin * dh;
    kernels::PackRequest request = {};
    request.num_outputs = heads.count() * dh;
    request.first_row = first;
    request.k_count = static_cast<int>(t.cols);
    if (interleaved) {
      request.row_of = [first, dh](int output) -> int64_t {
        int head = output / dh, i = output % dh, half = dh / 2;
        return first + head * dh + (i < half ? 2 * i : 2 * (i - half) + 1);
      };
    }
    out->plan = SingleLeaf(request.k_count);
    return Matrix(t, std::move(request), &out->weight);
  }

  Status Row(const std::string& name, int64_t k_begin, int k_count, const CanonicalTree& tree,
             TreeShare RankShard::*share_of, int unit_elems, RowLinear* out) {
    LS_ASSIGN_OR_RETURN(TensorRef t, source_.Get(name));
    kernels::PackRequest request = {};
    request.num_outputs = static_cast<int>(t.rows);
    request.k_begin = k_begin;
    request.k_count = k_count;
    std::vector<TreeShare> shares;
    for (const RankShard& rank : plan_.ranks) shares.push_back(rank.*share_of);
    const TreeShare& mine = shares[rank_];
    out->site = comm::CpuShared::Bind(tree, shares, rank_);
    kernels::LeafPlan& plan = out->plan;
    plan = {};
    for (size_t s = 0; s < mine.subtrees.size(); ++s) {
      const TreeProgram& program = mine.subtrees[s].program;
      for (int i = 0; i < program.num_values(); ++i, ++plan.num_leaves) {
        UnitRange leaf = tree.leaves()[mine.leaves.begin + plan.num_leaves];
        plan.k_end[plan.num_leaves] = std::min<int>(k_count, (leaf.end - mine.units.begin) * unit_elems);
        plan.merges_after[plan.num_leaves] = program.merges_after[i];
        plan.emit[plan.num_leaves] = i + 1 == program.num_values() ? static_cast<int>(s) : -1;
      }
    }
    return Matrix(t, std::move(request), &out->weight);
  }

  const WeightSource& source_;
  const ModelConfig& config_;
  const ShardPlan& plan_;
  int rank_;
  const RankShard& shard_;
  RankWeights* out_;
  uint8_t* base_ = nullptr;
  int64_t used_ = 0, norm_elems_ = 0;
};

Result<std::unique_ptr<RankWeights>> RankWeights::Plan(const WeightSource& source, const ShardPlan& plan, int rank) {
  auto weights = std::make_unique<RankWeights>();
  LS_RETURN_IF_ERROR(Planner(source, plan, rank, weights.get()).Run());
  return weights;
}

namespace {

// The file rows of some outputs, whole.
std::span<const uint8_t> RowsOf(const kernels::PackRequest& q, int begin, int end) {
  int64_t first = std::numeric_limits<int64_t>::max(), last = -1;
  for (int output = begin; output < end; ++output) {
    const int64_t row = q.row_of ? q.row_of(output) : q.first_row + output;
    first = std::min(first, row);
    last = std::max(last, row);
  }
  const DTypeInfo info = GetDTypeInfo(q.dtype);
  const int64_t row_bytes = q.source_cols / info.block_elems * info.block_bytes;
  return {q.source + first * row_bytes, static_cast<size_t>((last + 1 - first) * row_bytes)};
}

// A thread's part of a matrix is packed in pieces of about this many bytes of the file.
constexpr int64_t kPieceBytes = 1 << 20;
// Pages are dropped when the pieces read span so much: small beside any model, and large enough that the system call,
// which interrupts every other thread of the process (10 us), is nothing beside the copying (400 us).
constexpr int64_t kDropBytes = 4 << 20;

// What a thread has read of the source and not dropped yet, with all that lies between: other threads, which are at about
// the same place, get back what they still read.
class Dropper {
 public:
  explicit Dropper(const WeightSource& source) : source_(source) {}
  ~Dropper() { Flush(); }

  void Add(std::span<const uint8_t> piece) {
    const uint8_t* begin = std::min(begin_, piece.data(), std::less<>());
    const uint8_t* end = std::max(end_, piece.data() + piece.size(), std::less<>());
    if (begin_ != end_ && end - begin > kDropBytes) Flush();
    if (begin_ == end_) {
      begin = piece.data();
      end = begin + piece.size();
    }
    begin_ = begin;
    end_ = end;
  }

 private:
  void Flush() {
    if (begin_ != end_) source_.Drop({begin_, end_});
    begin_ = end_ = nullptr;
  }

  const WeightSource& source_;
  const uint8_t *begin_ = nullptr, *end_ = nullptr;
};

}  // namespace

void RankWeights::PackShare(const WeightSource& source, int thread, int num_threads) {
  Dropper dropper(source);
  for (const Job& job : jobs_) {
    const kernels::PackRequest& q = job.request;
    const GroupRange range = ThreadGroups(CeilDiv(q.num_outputs, 16), thread, num_threads);
    const auto group_bytes = static_cast<int64_t>(RowsOf(q, 0, 1).size()) * 16;
    const int step = static_cast<int>(std::max<int64_t>(1, kPieceBytes / group_bytes));
    for (int begin = range.begin; begin < range.end; begin += step) {
      const int end = std::min(begin + step, range.end);
      const std::span<const uint8_t> piece = RowsOf(q, begin * 16, std::min(end * 16, q.num_outputs));
      source.Fetch(piece);
      kernels::Pack(q, job.destination, begin, end);
      dropper.Add(piece);
    }
  }
}

}  // namespace lockstep::model
