// Products with cuBLASLt, which is column-major. A row-major matrix is a transposed column-major
// one: cᵀ [n, m] = op(b)ᵀ op(a)ᵀ. So A of cuBLASLt is our b, and B is our a.
#include <cublasLt.h>

#include <map>
#include <tuple>

#include "kernels/cuda/ops/bias.h"
#include "kernels/cuda/ops/matmul.h"

namespace troop::cuda {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t(32) << 20;  // as NVIDIA recommends for Hopper

// Everything that affects the choice of an algorithm: shape, leading dimensions, types, epilogue
// and alignment.
using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, bool, bool, std::int64_t,
                       std::int64_t, std::int64_t, Precision, DType, Epilogue, std::uint32_t>;

// Alignment of an address, up to 16 bytes; algorithms differ in their requirements.
std::uint32_t AlignmentOf(const void* p) {
  std::uint32_t bytes = 16;
  while (bytes > 1 && reinterpret_cast<std::uintptr_t>(p) % bytes != 0) bytes /= 2;
  return bytes;
}

// A product as described to cuBLASLt, and the algorithm it selected.
struct Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  bool fused = false;  // cuBLASLt applies the epilogue; else our kernel does
};

cudaDataType_t TypeOf(DType dtype) { return dtype == DType::kBF16 ? CUDA_R_16BF : CUDA_R_32F; }

cublasLtEpilogue_t EpilogueOf(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::kBiasRelu:
      return CUBLASLT_EPILOGUE_RELU_BIAS;
    case Epilogue::kBiasGeluTanh:
      return CUBLASLT_EPILOGUE_GELU_BIAS;
    default:
      return CUBLASLT_EPILOGUE_DEFAULT;
  }
}

}  // namespace

struct MatMulPlansState {
  explicit MatMulPlansState(Device& the_device)
      : device(the_device), workspace(the_device, kWorkspaceBytes, "cuBLAS's workspace") {
    Note(cublasLtCreate(&handle), "cublasLtCreate");
  }
  ~MatMulPlansState() {
    for (auto& [key, plan] : plans) Release(plan);
    if (handle != nullptr) cublasLtDestroy(handle);
  }

  // Returns true on success; otherwise stores the failure in the device.
  bool Note(cublasStatus_t status, const char* call, int line = __builtin_LINE()) {
    if (status == CUBLAS_STATUS_SUCCESS) return true;
    device.Fail(std::string(call) + " at " __FILE__ ":" + std::to_string(line) + ": " +
                cublasLtGetStatusString(status) +
                "; check that the cublasLt version matches the driver");
    return false;
  }

  // Frees the descriptors.
  static void Release(Plan& plan) {
    if (plan.operation != nullptr) cublasLtMatmulDescDestroy(plan.operation);
    for (cublasLtMatrixLayout_t layout : {plan.a, plan.b, plan.c})
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    plan = {};
  }

  // Builds the descriptors and selects an algorithm; false: cuBLASLt has none.
  bool Describe(const MatMulArgs& args, Epilogue epilogue, Plan* plan) {
    const MatMulShape& s = args.shape;
    const auto compute =
        args.precision == Precision::kTF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cudaDataType_t in = TypeOf(ElementType(args.precision)), out = TypeOf(args.c_dtype);
    if (!Note(cublasLtMatmulDescCreate(&plan->operation, compute, CUDA_R_32F),
              "cublasLtMatmulDescCreate"))
      return false;
    const auto set = [&](cublasLtMatmulDescAttributes_t what, auto value) {
      return Note(cublasLtMatmulDescSetAttribute(plan->operation, what, &value, sizeof value),
                  "cublasLtMatmulDescSetAttribute");
    };
    const auto transposed = [](bool t) { return t ? CUBLAS_OP_T : CUBLAS_OP_N; };
    // A and B are swapped, see above.
    bool ok = set(CUBLASLT_MATMUL_DESC_TRANSA, transposed(s.transpose_b)) &&
              set(CUBLASLT_MATMUL_DESC_TRANSB, transposed(s.transpose_a));
    if (epilogue != Epilogue::kNone) {
      ok = ok && set(CUBLASLT_MATMUL_DESC_EPILOGUE, EpilogueOf(epilogue)) &&
           set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, out) &&
           set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias);
    }
    const auto layout = [&](cublasLtMatrixLayout_t* made, cudaDataType_t type, std::int64_t rows,
                            std::int64_t columns, std::int64_t ld) {
      return Note(
          cublasLtMatrixLayoutCreate(made, type, std::uint64_t(rows), std::uint64_t(columns), ld),
          "cublasLtMatrixLayoutCreate");
    };
    // Row-major [r, c] with leading dimension ld is column-major [c, r].
    const std::int64_t a_rows = s.transpose_a ? s.k : s.m, a_columns = s.transpose_a ? s.m : s.k;
    const std::int64_t b_rows = s.transpose_b ? s.n : s.k, b_columns = s.transpose_b ? s.k : s.n;
    ok = ok && layout(&plan->a, in, b_columns, b_rows, s.ldb > 0 ? s.ldb : b_columns) &&
         layout(&plan->b, in, a_columns, a_rows, s.lda > 0 ? s.lda : a_columns) &&
         layout(&plan->c, out, s.n, s.m, s.ldc > 0 ? s.ldc : s.n);
    return ok && Choose(args, plan);
  }

  // Takes the first result of the heuristic within our workspace and alignment.
  bool Choose(const MatMulArgs& args, Plan* plan) {
    cublasLtMatmulPreference_t preference = nullptr;
    if (!Note(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate"))
      return false;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &kWorkspaceBytes, sizeof kWorkspaceBytes);
    const auto align = [&](cublasLtMatmulPreferenceAttributes_t what, const void* p) {
      const std::uint32_t bytes = AlignmentOf(p);
      cublasLtMatmulPreferenceSetAttribute(preference, what, &bytes, sizeof bytes);
    };
    align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, args.b);
    align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, args.a);
    align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, args.c);
    align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, args.c);
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, plan->operation, plan->a, plan->b, plan->c, plan->c,
                                       preference, 1, &result, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    // Not an error: the caller may plan without the epilogue.
    if (status != CUBLAS_STATUS_SUCCESS || found == 0) return false;
    plan->algorithm = result.algo;
    return true;
  }

  // The plan of a product, created on first use. If no algorithm supports the epilogue, plans the
  // product without it. nullptr: failed.
  const Plan* Find(const MatMulArgs& args) {
    const MatMulShape& s = args.shape;
    const std::uint32_t alignment =
        AlignmentOf(args.a) | AlignmentOf(args.b) << 8 | AlignmentOf(args.c) << 16;
    const Key key{s.m,           s.n,      s.k,   s.transpose_a,  s.transpose_b,
                  s.lda,         s.ldb,    s.ldc, args.precision, args.c_dtype,
                  args.epilogue, alignment};
    const auto found = plans.find(key);
    if (found != plans.end()) return &found->second;
    Plan plan;
    plan.fused = Describe(args, args.epilogue, &plan);
    if (!plan.fused) {
      Release(plan);
      if (!device.ok()) return nullptr;
      if (args.epilogue == Epilogue::kNone || !Describe(args, Epilogue::kNone, &plan)) {
        Release(plan);
        device.Fail("cublasLt has no algorithm to multiply [" + std::to_string(s.m) + ", " +
                    std::to_string(s.k) + "] and [" + std::to_string(s.k) + ", " +
                    std::to_string(s.n) + "]");
        return nullptr;
      }
    }
    return &plans.emplace(key, plan).first->second;
  }

  Device& device;
  cublasLtHandle_t handle = nullptr;
  DeviceArray<std::byte> workspace;
  std::map<Key, Plan> plans;
};

MatMulPlans::MatMulPlans(Device& device) : state_(std::make_unique<MatMulPlansState>(device)) {}
MatMulPlans::~MatMulPlans() = default;

void MatMul(Stream& stream, MatMulPlans& plans, const MatMulArgs& args) {
  MatMulPlansState& state = *plans.state();
  if (!state.device.ok() || args.shape.m == 0 || args.shape.n == 0) return;
  const Plan* plan = state.Find(args);
  if (plan == nullptr) return;
  // A plan is shared by products with different biases.
  if (plan->fused && args.bias != nullptr) {
    state.Note(cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                              &args.bias, sizeof args.bias),
               "cublasLtMatmulDescSetAttribute");
  }
  const float one = 1;
  state.Note(cublasLtMatmul(state.handle, plan->operation, &one, args.b, plan->a, args.a, plan->b,
                            &args.beta, args.c, plan->c, args.c, plan->c, &plan->algorithm,
                            state.workspace.data(), kWorkspaceBytes,
                            static_cast<cudaStream_t>(stream.handle())),
             "cublasLtMatmul");
  if (!plan->fused) {
    // The separate pass for an epilogue that cuBLASLt does not support.
    BiasAndActivate(stream, {.epilogue = args.epilogue,
                             .m = args.shape.m,
                             .n = args.shape.n,
                             .ldc = args.shape.ldc,
                             .bias = args.bias,
                             .c = args.c,
                             .c_dtype = args.c_dtype});
  }
}

}  // namespace troop::cuda
