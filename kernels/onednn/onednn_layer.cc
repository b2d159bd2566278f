// Layers over oneDNN. Each layer compiles a primitive per batch size and pass, keeps the weights in
// the layouts that these primitives selected, and reuses both.
#include "kernels/onednn/onednn_layer.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>
#include <dnnl.hpp>
#include <initializer_list>
#include <utility>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/check.h"

namespace troop {
namespace {

using dnnl::memory;
using dnnl::prop_kind;
using Tag = memory::format_tag;
using Desc = memory::desc;

// Set by SetKernelThreads; each thread applies it in PrepareKernelThread.
std::atomic<int> kernel_threads{1};

// The oneDNN type of a compute dtype.
memory::data_type TypeOf(DType dtype) {
  TROOP_CHECK(dtype == DType::kF32 || dtype == DType::kBF16,
              "layers do not support {}; use f32 or bf16", DTypeName(dtype));
  return dtype == DType::kF32 ? memory::data_type::f32 : memory::data_type::bf16;
}

// Runs f, which must not fail. oneDNN reports misuse by exceptions, and none may leave this file.
template <class F>
auto NoThrow(const char* what, F&& f) {
  try {
    return f();
  } catch (const dnnl::error& error) {
    TROOP_CHECK(false, "oneDNN {}: {} (status {})", what, error.what(), int(error.status));
  }
}

// A primitive and its argument list, built once; running it only replaces pointers.
class Call {
 public:
  Call() = default;
  explicit Call(dnnl::primitive primitive) : primitive_(std::move(primitive)) {}

  // REQUIRES: all Add before the first Run.
  void Add(int argument, memory memory) {
    memories_.push_back(std::move(memory));
    arguments_.push_back({argument, memories_.back().get()});
  }
  // Sets the pointers of the first arguments, in the order of Add, and executes; the other
  // arguments keep theirs.
  void Run(const dnnl::stream& stream, std::initializer_list<const void*> data) {
    std::size_t i = 0;
    for (const void* pointer : data) {
      dnnl_memory_set_data_handle_v2(memories_[i++].get(), const_cast<void*>(pointer), nullptr);
    }
    const dnnl_status_t status = dnnl_primitive_execute(primitive_.get(), stream.get(),
                                                        int(arguments_.size()), arguments_.data());
    TROOP_CHECK(status == dnnl_success, "oneDNN execution failed: status {}", int(status));
  }

 private:
  dnnl::primitive primitive_;
  std::vector<memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

dnnl::primitive_attr ScratchpadAttr() {
  dnnl::primitive_attr attr;
  // A library-managed scratchpad belongs to the thread that created the primitive; a user-managed
  // one can move between threads with the layer.
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

// Attributes with the activation fused as a post-op.
dnnl::primitive_attr ForwardAttr(Activation activation) {
  dnnl::primitive_attr attr = ScratchpadAttr();
  if (activation == Activation::kNone) return attr;
  dnnl::post_ops ops;
  ops.append_eltwise(1.0f,
                     activation == Activation::kRelu ? dnnl::algorithm::eltwise_relu
                                                     : dnnl::algorithm::eltwise_tanh,
                     0.0f, 0.0f);
  attr.set_post_ops(ops);
  return attr;
}

// Descriptors of a layer's arrays, or of their gradients. BackwardData has no bias.
struct ArrayDescs {
  Desc x, weight, bias, y;
};

// oneDNN descriptors of a fully connected layer. ConvKind has the same interface, so that DnnlLayer
// serves both. plain: the layout of the trained weights; otherwise oneDNN selects one.
struct LinearKind {
  LinearShape shape;

  Desc X(std::int64_t batch, memory::data_type type) const {
    return {{batch, shape.in}, type, Tag::nc};
  }
  Desc Y(std::int64_t batch, memory::data_type type) const {
    return {{batch, shape.out}, type, Tag::nc};
  }
  Desc Weight(memory::data_type type, bool plain) const {
    return {{shape.out, shape.in}, type, plain ? Tag::oi : Tag::any};
  }
  std::int64_t outputs() const { return shape.out; }

  // Primitive descriptors of the three passes; `hint` is the forward pass they belong to.
  using ForwardPd = dnnl::inner_product_forward::primitive_desc;
  ForwardPd Forward(const ArrayDescs& d, const dnnl::primitive_attr& attr,
                    const dnnl::engine& engine) const {
    return {{prop_kind::forward_training, d.x, d.weight, d.bias, d.y}, attr, engine};
  }
  using DataPd = dnnl::inner_product_backward_data::primitive_desc;
  DataPd BackwardData(const ArrayDescs& d, const dnnl::primitive_attr& attr,
                      const dnnl::engine& engine, const ForwardPd& hint) const {
    return {{d.x, d.weight, d.y}, attr, engine, hint};
  }
  using WeightPd = dnnl::inner_product_backward_weights::primitive_desc;
  WeightPd BackwardWeight(const ArrayDescs& d, const dnnl::primitive_attr& attr,
                          const dnnl::engine& engine, const ForwardPd& hint) const {
    return {{d.x, d.weight, d.bias, d.y}, attr, engine, hint};
  }
  static dnnl::primitive Make(const ForwardPd& pd) { return dnnl::inner_product_forward(pd); }
  static dnnl::primitive Make(const DataPd& pd) { return dnnl::inner_product_backward_data(pd); }
  static dnnl::primitive Make(const WeightPd& pd) {
    return dnnl::inner_product_backward_weights(pd);
  }
};

// oneDNN descriptors of a convolution; see LinearKind.
struct ConvKind {
  ConvShape shape;

  // Activations are always NHWC. With a free choice, oneDNN uses a path for the weight gradient of
  // the first layer that is four times slower.
  Desc X(std::int64_t batch, memory::data_type type) const {
    return {{batch, shape.channels, shape.height, shape.width}, type, Tag::nhwc};
  }
  Desc Y(std::int64_t batch, memory::data_type type) const {
    return {{batch, shape.filters, shape.out_height(), shape.out_width()}, type, Tag::nhwc};
  }
  Desc Weight(memory::data_type type, bool plain) const {
    const std::int64_t groups = shape.groups, k = shape.kernel;
    if (groups == 1) {
      return {{shape.filters, shape.channels, k, k}, type, plain ? Tag::ohwi : Tag::any};
    }
    // The group is a separate axis, the outermost one of the plain layout.
    return {{groups, shape.filters / groups, shape.channels / groups, k, k},
            type,
            plain ? Tag::gohwi : Tag::any};
  }
  std::int64_t outputs() const { return shape.filters; }
  memory::dims strides() const { return {shape.stride, shape.stride}; }
  memory::dims padding() const { return {shape.padding, shape.padding}; }  // at each end

  static constexpr dnnl::algorithm kDirect = dnnl::algorithm::convolution_direct;
  using ForwardPd = dnnl::convolution_forward::primitive_desc;
  ForwardPd Forward(const ArrayDescs& d, const dnnl::primitive_attr& attr,
                    const dnnl::engine& engine) const {
    return {{prop_kind::forward_training, kDirect, d.x, d.weight, d.bias, d.y, strides(), padding(),
             padding()},
            attr,
            engine};
  }
  using DataPd = dnnl::convolution_backward_data::primitive_desc;
  DataPd BackwardData(const ArrayDescs& d, const dnnl::primitive_attr& attr,
                      const dnnl::engine& engine, const ForwardPd& hint) const {
    return {{kDirect, d.x, d.weight, d.y, strides(), padding(), padding()}, attr, engine, hint};
  }
  using WeightPd = dnnl::convolution_backward_weights::primitive_desc;
  WeightPd BackwardWeight(const ArrayDescs& d, const dnnl::primitive_attr& attr,
                          const dnnl::engine& engine, const ForwardPd& hint) const {
    return {
        {kDirect, d.x, d.weight, d.bias, d.y, strides(), padding(), padding()}, attr, engine, hint};
  }
  static dnnl::primitive Make(const ForwardPd& pd) { return dnnl::convolution_forward(pd); }
  static dnnl::primitive Make(const DataPd& pd) { return dnnl::convolution_backward_data(pd); }
  static dnnl::primitive Make(const WeightPd& pd) { return dnnl::convolution_backward_weights(pd); }
};

// A layer of either kind; see LayerKernel.
template <class Kind>
class DnnlLayer final : public LayerKernel {
 public:
  DnnlLayer(const Kind& kind, const KernelOptions& options)
      : kind_(kind),
        options_(options),
        compute_(TypeOf(options.compute)),
        plain_(kind.Weight(memory::data_type::f32, true)),
        bias_({kind.outputs()}, memory::data_type::f32, Tag::a) {}

  void Pack(const LayerWeights& weights) override {
    PrepareKernelThread();
    for (const auto& layout : layouts_) layout->reorder.Run(stream_, {weights.weight});
  }

  void Forward(std::int64_t batch, const LayerWeights& weights, const void* x, void* y,
               DType y_dtype) override {
    PrepareKernelThread();
    Weighted& plan = Find(forwards_, batch, y_dtype, weights, &DnnlLayer::CompileForward);
    plan.call.Run(stream_, {x, y, weights.bias,
                            plan.layout ? plan.layout->data.data()
                                        : static_cast<const void*>(weights.weight)});
  }

  void BackwardData(std::int64_t batch, const LayerWeights& weights, const void* dz, void* dx,
                    DType dx_dtype) override {
    PrepareKernelThread();
    Weighted& plan = Find(backwards_, batch, dx_dtype, weights, &DnnlLayer::CompileBackwardData);
    plan.call.Run(stream_, {dz, dx,
                            plan.layout ? plan.layout->data.data()
                                        : static_cast<const void*>(weights.weight)});
  }

  void BackwardWeight(std::int64_t batch, const void* x, const void* dz,
                      const LayerGradient& gradient, bool accumulate) override {
    PrepareKernelThread();
    Gradient& plan = FindGradient(batch);
    // Writes directly to the gradient if its layout matches and nothing is added; otherwise to a
    // buffer, which is then copied or added.
    const bool direct = plan.plain && !accumulate;
    float* const dw = direct ? gradient.weight : reinterpret_cast<float*>(gradient_.data());
    float* const db = accumulate ? bias_gradient_.data() : gradient.bias;
    plan.call.Run(stream_, {x, dz, dw, db});
    if (!direct) (accumulate ? plan.add : plan.copy).Run(stream_, {dw, gradient.weight});
    // oneDNN has no accumulating bias gradient.
    if (accumulate) {
      for (std::size_t i = 0; i < bias_gradient_.size(); ++i) gradient.bias[i] += db[i];
    }
  }

 private:
  // The weights in one layout that a primitive selected.
  struct Layout {
    Desc desc;
    MutableBuffer data;
    Call reorder;  // from the plain f32 weights
  };
  // A compiled forward or data-gradient primitive.
  struct Weighted {
    std::int64_t batch;
    DType dtype;     // of the result
    Layout* layout;  // nullptr: uses the plain weights
    Call call;
  };
  // A compiled weight-gradient primitive, with reorders of its result to the plain layout.
  struct Gradient {
    std::int64_t batch;
    bool plain;  // true if the result has the plain layout
    Call call, copy, add;
  };

  // Returns the plan for a batch size and result type; compiles it on first use. Linear search: a
  // layer sees few batch sizes.
  template <class Compile>
  Weighted& Find(std::vector<std::unique_ptr<Weighted>>& plans, std::int64_t batch, DType dtype,
                 const LayerWeights& weights, Compile compile) {
    for (const auto& plan : plans) {
      if (plan->batch == batch && plan->dtype == dtype) return *plan;
    }
    plans.push_back(NoThrow("layer", [&] { return (this->*compile)(batch, dtype, weights); }));
    return *plans.back();
  }

  // Returns the weight-gradient plan of a batch size; compiles it on first use.
  Gradient& FindGradient(std::int64_t batch) {
    for (const auto& plan : gradients_) {
      if (plan->batch == batch) return *plan;
    }
    gradients_.push_back(NoThrow("weight gradient", [&] { return CompileGradient(batch); }));
    return *gradients_.back();
  }

  typename Kind::ForwardPd ForwardPd(std::int64_t batch, memory::data_type y,
                                     const dnnl::primitive_attr& attr) const {
    return kind_.Forward({.x = kind_.X(batch, compute_),
                          .weight = kind_.Weight(compute_, false),
                          .bias = bias_,
                          .y = kind_.Y(batch, y)},
                         attr, engine_);
  }

  // The order of Add is the order of pointers in Run.
  std::unique_ptr<Weighted> CompileForward(std::int64_t batch, DType dtype,
                                           const LayerWeights& weights) {
    const auto pd = ForwardPd(batch, TypeOf(dtype), ForwardAttr(options_.activation));
    Call call{Kind::Make(pd)};
    call.Add(DNNL_ARG_SRC, Unbound(pd.src_desc()));
    call.Add(DNNL_ARG_DST, Unbound(pd.dst_desc()));
    call.Add(DNNL_ARG_BIAS, Unbound(pd.bias_desc()));
    call.Add(DNNL_ARG_WEIGHTS, Unbound(pd.weights_desc()));
    AddScratchpad(call, pd.scratchpad_desc());
    return std::make_unique<Weighted>(
        Weighted{batch, dtype, FindLayout(pd.weights_desc(), weights), std::move(call)});
  }

  std::unique_ptr<Weighted> CompileBackwardData(std::int64_t batch, DType dtype,
                                                const LayerWeights& weights) {
    // oneDNN derives backward primitives from a forward descriptor.
    const auto hint = ForwardPd(batch, compute_, ScratchpadAttr());
    const auto pd = kind_.BackwardData({.x = kind_.X(batch, TypeOf(dtype)),
                                        .weight = kind_.Weight(compute_, false),
                                        .bias = {},
                                        .y = kind_.Y(batch, compute_)},
                                       ScratchpadAttr(), engine_, hint);
    Call call{Kind::Make(pd)};
    call.Add(DNNL_ARG_DIFF_DST, Unbound(pd.diff_dst_desc()));
    call.Add(DNNL_ARG_DIFF_SRC, Unbound(pd.diff_src_desc()));
    call.Add(DNNL_ARG_WEIGHTS, Unbound(pd.weights_desc()));
    AddScratchpad(call, pd.scratchpad_desc());
    return std::make_unique<Weighted>(
        Weighted{batch, dtype, FindLayout(pd.weights_desc(), weights), std::move(call)});
  }

  std::unique_ptr<Gradient> CompileGradient(std::int64_t batch) {
    const auto hint = ForwardPd(batch, compute_, ScratchpadAttr());
    const auto pd = kind_.BackwardWeight({.x = kind_.X(batch, compute_),
                                          .weight = kind_.Weight(memory::data_type::f32, false),
                                          .bias = bias_,
                                          .y = kind_.Y(batch, compute_)},
                                         ScratchpadAttr(), engine_, hint);
    const Desc result = pd.diff_weights_desc();
    Call call{Kind::Make(pd)};
    call.Add(DNNL_ARG_SRC, Unbound(pd.src_desc()));
    call.Add(DNNL_ARG_DIFF_DST, Unbound(pd.diff_dst_desc()));
    call.Add(DNNL_ARG_DIFF_WEIGHTS, Unbound(result));
    call.Add(DNNL_ARG_DIFF_BIAS, Unbound(bias_));
    AddScratchpad(call, pd.scratchpad_desc());
    // One buffer serves all batch sizes.
    if (gradient_.size() < result.get_size()) gradient_ = MutableBuffer(result.get_size());
    bias_gradient_.resize(std::size_t(kind_.outputs()));
    return std::make_unique<Gradient>(Gradient{batch, result == plain_, std::move(call),
                                               MakeReorder(result, plain_, false),
                                               MakeReorder(result, plain_, true)});
  }

  // The weights in layout `desc`, packed on first use; nullptr for the plain layout.
  Layout* FindLayout(const Desc& desc, const LayerWeights& weights) {
    if (desc == plain_) return nullptr;
    for (const auto& layout : layouts_) {
      if (layout->desc == desc) return layout.get();
    }
    auto layout = std::make_unique<Layout>();
    layout->desc = desc;
    layout->data = MutableBuffer(desc.get_size());
    layout->reorder = MakeReorder(plain_, desc, false);
    layout->reorder.Run(stream_, {weights.weight, layout->data.data()});
    layouts_.push_back(std::move(layout));
    return layouts_.back().get();
  }

  // A reorder to = from, or to += from.
  Call MakeReorder(const Desc& from, const Desc& to, bool add) {
    dnnl::primitive_attr attr = ScratchpadAttr();
    if (add) {
      dnnl::post_ops ops;
      ops.append_sum(1.0f);
      attr.set_post_ops(ops);
    }
    const dnnl::reorder::primitive_desc pd(engine_, from, engine_, to, attr);
    Call call{dnnl::reorder(pd)};
    call.Add(DNNL_ARG_FROM, Unbound(from));
    call.Add(DNNL_ARG_TO, Unbound(to));
    AddScratchpad(call, pd.scratchpad_desc());
    return call;
  }

  // A memory object whose pointer each Run sets.
  memory Unbound(const Desc& desc) const { return memory(desc, engine_, DNNL_MEMORY_NONE); }
  void AddScratchpad(Call& call, const Desc& desc) const {
    if (desc.get_size() > 0) call.Add(DNNL_ARG_SCRATCHPAD, memory(desc, engine_));
  }

  const Kind kind_;
  const KernelOptions options_;
  const memory::data_type compute_;
  const Desc plain_, bias_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::vector<std::unique_ptr<Layout>> layouts_;
  std::vector<std::unique_ptr<Weighted>> forwards_, backwards_;
  std::vector<std::unique_ptr<Gradient>> gradients_;
  MutableBuffer gradient_;  // weight gradient in a oneDNN layout, before the reorder
  std::vector<float> bias_gradient_;
};

}  // namespace

// OpenMP has a thread count per calling thread, so each calling thread sets its own. The function
// is looked up at run time in the OpenMP runtime that oneDNN was linked with, because the header of
// a runtime belongs to one compiler. If there is none, oneDNN has no threads.
void PrepareKernelThread() {
  thread_local int applied = 0;
  const int wanted = kernel_threads.load(std::memory_order_relaxed);
  if (applied == wanted) return;
  applied = wanted;
  void* const symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
  if (symbol != nullptr) reinterpret_cast<void (*)(int)>(symbol)(wanted);
}

bool BF16Available() {
  // oneDNN emulates bf16 with AVX-512 instructions.
  static const bool available = dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core;
  return available;
}

void SetKernelThreads(int threads) {
  TROOP_CHECK(threads > 0, "threads is {}, must be positive", threads);
  kernel_threads.store(threads, std::memory_order_relaxed);
}

std::unique_ptr<LayerKernel> MakeDnnlLinear(const LinearShape& shape,
                                            const KernelOptions& options) {
  TROOP_CHECK(shape.in > 0 && shape.out > 0, "linear {} -> {}", shape.in, shape.out);
  return NoThrow("setup", [&]() -> std::unique_ptr<LayerKernel> {
    return std::make_unique<DnnlLayer<LinearKind>>(LinearKind{shape}, options);
  });
}

std::unique_ptr<LayerKernel> MakeDnnlConv(const ConvShape& shape, const KernelOptions& options) {
  TROOP_CHECK(shape.kernel > 0 && shape.stride > 0 && shape.padding >= 0 &&
                  shape.kernel <= shape.height + 2 * shape.padding &&
                  shape.kernel <= shape.width + 2 * shape.padding && shape.channels > 0 &&
                  shape.filters > 0 && shape.groups > 0 && shape.channels % shape.groups == 0 &&
                  shape.filters % shape.groups == 0,
              "conv2d kernel {} stride {} padding {} groups {} on [{}, {}, {}]", shape.kernel,
              shape.stride, shape.padding, shape.groups, shape.height, shape.width, shape.channels);
  return NoThrow("setup", [&]() -> std::unique_ptr<LayerKernel> {
    return std::make_unique<DnnlLayer<ConvKind>>(ConvKind{shape}, options);
  });
}

// A function of the C interface, which throws no exceptions.
PackageVersion DnnlPackage() {
  const dnnl_version_t* const version = dnnl_version();
  return {"oneDNN", fmt::format("{}.{}.{}", version->major, version->minor, version->patch)};
}

}  // namespace troop
