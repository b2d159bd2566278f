// Exported C files: compiled for this machine and for a microcontroller, and compared with Troop's
// modules.
#include "nn/export/c_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "core/storage/read_file.h"
#include "tests/core/temp_folder.h"
#include "tests/nn/policy_cases.h"

namespace troop {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t kRows = 6;  // episodes of one stack each, or steps of a recurrent policy

// The program around a policy: it shows the frames of each row in turn, and prints the bits of the
// last outputs. INPUT is an array of all frames; the action of discrete policies must be the first
// largest value.
constexpr std::string_view kDriver = R"(
#include <stdio.h>
static policy_state state;
static void print(float x) {
  union { float value; uint32_t bits; } u;
  u.value = x;
  printf("%08lx\n", (unsigned long)u.bits);
}
int main(void) {
  int row, s, i;
  for (row = 0; row < ROWS; ++row) {
    policy_action action;
    if (row % EPISODE == 0) policy_reset(&state);
    for (s = 0; s < STACK; ++s) {
      policy_observation observation;
      observation.observation = (const TYPE*)INPUT + (row * STACK + s) * FRAME;
      if (ACT != 0) return 1;
    }
#if DISCRETE
    for (i = 0; i < ACTIONS; ++i) {
      print(policy_q_values(&state)->action[i]);
      const float* const q = policy_q_values(&state)->action;
      if (q[i] > q[action.action]) return 2;
    }
#else
    for (i = 0; i < ACTIONS; ++i) print(action.action[i]);
#endif
  }
  return 0;
}
)";

void WriteText(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary).write(text.data(), std::streamsize(text.size()));
}

// Runs a command in a shell; its output is in `log`. Returns the exit code.
int Shell(const std::string& command, const std::string& log) {
  const int status = std::system(fmt::format("({}) > {} 2>&1", command, log).c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
bool HasTool(const char* tool) {
  return std::system(fmt::format("command -v {} > /dev/null 2>&1", tool).c_str()) == 0;
}

// A case with its files in a folder: policy.c, driver.c.
class CPolicyFiles {
 public:
  explicit CPolicyFiles(const PolicyCase& c) : bench_(c.setup, c.env), case_(c) {
    const auto text = EncodeCPolicy(bench_.Description(), bench_.Parameters(), "policy");
    EXPECT_TRUE(text.ok()) << text.status().ToString();
    if (!text.ok()) return;
    WriteText(path("policy.c"), *text);
    WriteText(path("driver.c"), Driver());
  }
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }

  // Runs a command in the folder. Fails the test, with the output, if the command fails.
  std::string Run(const std::string& command) const {
    const int code = Shell(fmt::format("cd {} && {}", folder_.path(), command), path("log"));
    std::string output = *ReadFile(path("log"), 1 << 24);
    EXPECT_EQ(code, 0) << command << "\n" << output;
    return output;
  }

  // Compares the printed outputs with those of the module.
  void Compare(const std::string& printed) const {
    const std::vector<float> want = bench_.Reference(bench_.Observations(kRows, 11));
    std::istringstream lines(printed);
    std::vector<float> got;
    for (std::string line; std::getline(lines, line);) {
      const auto bits = std::uint32_t(std::strtoul(line.c_str(), nullptr, 16));
      float value;
      std::memcpy(&value, &bits, sizeof value);
      got.push_back(value);
    }
    ASSERT_EQ(got.size(), want.size()) << printed;
    for (std::size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 1e-5 * std::max(1.0f, std::abs(want[i]))) << i;
  }

  // Symbols that an object needs of others, except for the four functions that a compiler may call
  // in any program, and the helpers of the compiler.
  std::string Undefined(const std::string& nm, const std::string& object) const {
    std::istringstream lines(Run(fmt::format("{} -u {}", nm, object)));
    std::string out;
    for (std::string kind, name; lines >> kind >> name;) {
      const bool fixed =
          name == "memcpy" || name == "memset" || name == "memmove" || name == "memcmp";
      if (!fixed && !name.starts_with("__aeabi_")) out += name + " ";
    }
    return out;
  }
  // Bytes of sections that a program would have to initialize: variables and constructors.
  std::string Initialized(const std::string& objdump, const std::string& object) const {
    std::istringstream lines(Run(fmt::format("{} -h {}", objdump, object)));
    std::string out;
    bool constants = false;
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string index, name, bytes;
      words >> index >> name >> bytes;
      if (index.empty() || std::isdigit(static_cast<unsigned char>(index[0])) == 0) continue;
      const bool empty = bytes.find_first_not_of('0') == bytes.npos;
      constants = constants || (name.starts_with(".rodata") && !empty);
      for (const char* const variable : {".data", ".bss", ".init", ".ctors", ".tdata", ".tbss"})
        if (name.starts_with(variable) && !empty) out += name + " ";
    }
    return constants ? out : out + "no .rodata";
  }

 private:
  // Sizes, the input as constants, and the program.
  std::string Driver() const {
    const EnvSpec& env = bench_.env();
    const Tensor input = bench_.Observations(kRows, 11);
    const bool discrete = env.action.discrete();
    std::string out = fmt::format(
        "#define policy_DECLARATIONS\n#include \"policy.c\"\n#define ROWS {}\n#define STACK {}\n"
        "#define FRAME {}\n#define EPISODE {}\n#define DISCRETE {}\n#define ACTIONS {}\n#define "
        "ACT {}\n",
        kRows, case_.setup.frame_stack, env.observation.shape.elements(),
        test::EpisodeOf(case_.setup), discrete ? 1 : 0,
        discrete ? env.action.count : std::int64_t(env.action.low.size()),
        discrete ? "policy_act(&state, &observation, NULL, &action)"
                 : "policy_act(&state, &observation, &action)");
    const DType dtype = env.observation.dtype;
    out += fmt::format("#define TYPE {}\nstatic const uint32_t INPUT[] = {{",
                       dtype == DType::kU8    ? "uint8_t"
                       : dtype == DType::kI32 ? "int32_t"
                                              : "float");
    // Words of the raw bytes: both machines are little-endian.
    const auto bytes = input.bytes();
    for (std::size_t at = 0; at < bytes.size(); at += 4) {
      std::uint32_t word = 0;
      std::memcpy(&word, bytes.data() + at, std::min<std::size_t>(4, bytes.size() - at));
      out += fmt::format("{}{}u,", at % 32 == 0 ? "\n" : " ", word);
    }
    return out + "\n};\n" + std::string(kDriver);
  }

  const TempFolder folder_;
  const PolicyBench bench_;
  const PolicyCase case_;
};

class CPolicyCaseTest : public testing::TestWithParam<PolicyCase> {};

constexpr const char* kFlags = "-Wall -Wextra -Werror -pedantic -ffreestanding";

// Also as part of a C++ program, whose rules for constants and pointers are stricter.
TEST_P(CPolicyCaseTest, CompiledPolicyEqualsModule) {
  if (!HasTool("cc")) GTEST_SKIP() << "no C compiler";
  const CPolicyFiles files(GetParam());
  files.Run(fmt::format("cc -std=c99 -O1 {} -c policy.c", kFlags));
  files.Compare(
      files.Run("cc -std=c99 -fno-strict-aliasing driver.c policy.o -o driver && ./driver"));
  EXPECT_EQ(files.Undefined("nm", "policy.o"), "");
  EXPECT_EQ(files.Initialized("objdump", "policy.o"), "");
  files.Run(fmt::format("c++ -std=c++20 -fsyntax-only {} -x c++ policy.c", kFlags));
}

// Memory of mps2-an386: 4 MiB each. The vectors are the initial stack pointer and the entry; the
// coprocessors of the FPU are switched on before the C library's start.
constexpr std::string_view kLinkerScript = R"(
MEMORY { FLASH (rx) : ORIGIN = 0, LENGTH = 4M  RAM (rwx) : ORIGIN = 0x20000000, LENGTH = 4M }
ENTRY(enter)
SECTIONS {
  .vectors : { LONG(0x20400000) LONG(enter | 1) } > FLASH
  .text : { *(.text*) KEEP(*(.init)) KEEP(*(.fini)) *(.rodata*) } > FLASH
  .ARM.exidx : { *(.ARM.exidx*) } > FLASH
  .arrays : { __preinit_array_start = .; KEEP(*(.preinit_array)) __preinit_array_end = .;
    __init_array_start = .; KEEP(*(SORT(.init_array.*))) KEEP(*(.init_array)) __init_array_end = .;
    __fini_array_start = .; KEEP(*(.fini_array)) __fini_array_end = .; } > FLASH
  .data : { *(.data*) } > RAM
  .bss : { __bss_start__ = .; *(.bss*) *(COMMON) __bss_end__ = .; } > RAM
  end = .; __end__ = .;
}
)";
constexpr std::string_view kEntry = R"(
void _start(void);
__attribute__((naked)) void enter(void) {
  __asm__("ldr r0, =0xE000ED88\n ldr r1, [r0]\n orr r1, #0xF00000\n str r1, [r0]\n dsb\n isb\n"
          "b _start");
}
)";

// A Cortex-M4 with its f32 unit, and one without, whose arithmetic is in software.
TEST_P(CPolicyCaseTest, PolicyOfMicrocontrollerEqualsModule) {
  for (const char* const tool : {"arm-none-eabi-gcc", "qemu-system-arm"})
    if (!HasTool(tool)) GTEST_SKIP() << "no " << tool;
  const CPolicyFiles files(GetParam());
  WriteText(files.path("mps2.ld"), kLinkerScript);
  WriteText(files.path("entry.c"), kEntry);
  for (const char* const fpu : {"-mfloat-abi=hard -mfpu=fpv4-sp-d16", "-mfloat-abi=soft"}) {
    const std::string gcc = fmt::format("arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb {} -O2", fpu);
    files.Run(fmt::format("{} -std=c99 {} -c policy.c", gcc, kFlags));
    EXPECT_EQ(files.Undefined("arm-none-eabi-nm", "policy.o"), "");
    EXPECT_EQ(files.Initialized("arm-none-eabi-objdump", "policy.o"), "");
    files.Run(
        fmt::format("{} -fno-strict-aliasing --specs=rdimon.specs -T mps2.ld driver.c "
                    "entry.c policy.o -o driver.elf",
                    gcc));
    files.Compare(files.Run(
        "timeout 120 qemu-system-arm -M mps2-an386 -display none -monitor none -serial none "
        "-semihosting-config enable=on,target=native -kernel driver.elf"));
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, CPolicyCaseTest, testing::ValuesIn(PolicyCases()),
                         [](const auto& info) { return info.param.name; });

// One agent with a mask and a stack, and bad input.
constexpr std::string_view kSession = R"(
#include <stdio.h>
#include "policy.c"
static policy_state state;
static void show(void) {
  const policy_values* q = policy_q_values(&state);
  if (q) printf("%.6f %.6f %.6f\n", q->action[0], q->action[1], q->action[2]); else puts("none");
}
int main(void) {
  float x[2] = {1, 2};
  const float nan = (x[0] - 1) / (x[1] - 2);
  uint8_t allowed[3] = {0, 0, 0};
  policy_observation observation = {x};
  policy_mask mask = {allowed}, no_mask = {0};
  policy_action action = {-1}, masked = {-1};
  int best, a;
  policy_reset(&state);
  show();
  printf("%d\n", policy_act(&state, &observation, &no_mask, &action));
  show();
  best = action.action;
  printf("%d\n", policy_act(&state, &observation, &mask, &masked));
  x[1] = nan;
  printf("%d %d\n", policy_act(&state, &observation, 0, &masked), masked.action);
  printf("%d\n", policy_act(&state, 0, 0, &masked));
  x[0] = 3, x[1] = 4;
  printf("%d\n", policy_act(&state, &observation, 0, &action));
  show();
  for (a = 0; a < 3; ++a) allowed[a] = a != action.action;
  best = action.action;
  policy_reset(&state);
  show();
  printf("%d\n", policy_act(&state, &observation, &mask, &action));
  show();
  printf("%d\n", action.action != best && best >= 0);
  return 0;
}
)";

TEST(CPolicyTest, StateHasStacksMasksAndErrorsOfTheLibrary) {
  if (!HasTool("cc")) GTEST_SKIP() << "no C compiler";
  PolicyCase c{"", {}, DiscreteEnv({DType::kF32, {2}}, 3)};
  c.setup.frame_stack = 3;
  const CPolicyFiles files(c);
  WriteText(files.path("session.c"), kSession);
  const std::string printed =
      files.Run("cc -std=c99 -Wall -Wextra -Werror session.c -o session && ./session");
  const PolicyBench bench(c.setup, c.env);
  const auto values = [&](const std::vector<float>& stack) {
    Tensor x(DType::kF32, {1, 3, 2});
    std::ranges::copy(stack, x.as<float>().begin());
    const std::vector<float> q = bench.Reference(x);
    return fmt::format("{:.4f} {:.4f} {:.4f}", q[0], q[1], q[2]);
  };
  // Printed with 6 digits, compared with 4: the last ones may be rounded otherwise.
  std::vector<std::string> lines;
  std::istringstream text(printed);
  for (std::string line; std::getline(text, line);) {
    float q[3];
    if (std::sscanf(line.c_str(), "%f %f %f", q, q + 1, q + 2) == 3)
      line = fmt::format("{:.4f} {:.4f} {:.4f}", q[0], q[1], q[2]);
    lines.push_back(line);
  }
  // The frames that were refused are in no stack.
  EXPECT_THAT(lines, testing::ElementsAre("none", "0", values({0, 0, 0, 0, 1, 2}), "1", "2 -1", "1",
                                          "0", values({0, 0, 1, 2, 3, 4}), "none", "0",
                                          values({0, 0, 0, 0, 3, 4}), "1"));
}

// Actions that either mask forbids are not chosen; masks without a common action are an error.
TEST(CPolicyTest, MasksOfCallerAndObservationApplyTogether) {
  if (!HasTool("cc")) GTEST_SKIP() << "no C compiler";
  const PolicyCase c = PolicyCaseNamed("numbers_and_mask");
  const CPolicyFiles files(c);
  WriteText(files.path("pairs.c"), R"(
#include <stdio.h>
#include "policy.c"
int main(void) {
  static policy_state state;
  float x[10] = {0, 0, 0, 0, 0, 0, 0.5f, -1, 2, 0.25f};
  int pair, a, code;
  for (pair = 0; pair < 4096; ++pair) {
    uint8_t allowed[6];
    policy_observation observation = {x};
    policy_mask mask = {allowed};
    policy_action action = {-1};
    for (a = 0; a < 6; ++a) {
      x[a] = pair >> a & 1 ? 1.0f : -0.0f;
      allowed[a] = (uint8_t)(pair >> (6 + a) & 1);
    }
    policy_reset(&state);
    code = policy_act(&state, &observation, &mask, &action);
    printf("%d %ld\n", code, (long)action.action);
  }
  return 0;
}
)");
  std::istringstream printed(
      files.Run("cc -std=c99 -Wall -Wextra -Werror pairs.c -o pairs && ./pairs"));
  const PolicyBench bench(c.setup, c.env);
  const Tensor x(DType::kF32, {1, 10});
  std::ranges::copy(std::vector<float>{1, 1, 1, 1, 1, 1, 0.5f, -1, 2, 0.25f},
                    x.as<float>().begin());
  const std::vector<float> free = bench.Reference(x);
  for (int pair = 0; pair < 4096; ++pair) {
    const int seen = pair & 63, given = pair >> 6, allowed = seen == 0 ? given : seen & given;
    int code = -1, action = -1, want = -1;
    printed >> code >> action;
    for (int a = 0; a < 6; ++a) {
      if ((allowed >> a & 1) != 0 && (want < 0 || free[std::size_t(a)] > free[std::size_t(want)]))
        want = a;
    }
    EXPECT_EQ(code, allowed == 0 ? 1 : 0) << pair;
    EXPECT_EQ(action, want) << pair;
  }
}

TEST(CPolicyTest, ValuesAreWrittenExactly) {
  const PolicyCase c = PolicyCases()[0];
  const PolicyBench bench(c.setup, c.env);
  const auto text = EncodeCPolicy(bench.Description(), bench.Parameters(), "policy");
  ASSERT_TRUE(text.ok());
  // The first array is the weight of the first layer.
  const std::size_t begin = text->find("= {", text->find("policy_w_0["));
  std::istringstream numbers(text->substr(begin + 3, text->find("};", begin) - begin - 3));
  std::vector<float> got;
  for (std::string number; std::getline(numbers, number, ',');) {
    if (number.find('f') != number.npos) got.push_back(std::strtof(number.c_str(), nullptr));
  }
  const TensorFile parameters = bench.Parameters();
  const auto want = parameters.tensors.at("layers.0.weight").as<float>();
  EXPECT_TRUE(std::ranges::equal(got, want));
}

TEST(CPolicyTest, OriginCannotEndTheComment) {
  const PolicyCase c = PolicyCases()[0];
  const PolicyBench bench(c.setup, c.env);
  TensorFile file = bench.Parameters();
  file.metadata["environment"] = "a*/int evil;\n#error\n?\?/@";
  const auto text = EncodeCPolicy(bench.Description(), file, "policy");
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(*text, HasSubstr("environment: a_/int evil;_#error___/_\n"));
}

TEST(CPolicyTest, LargePoliciesAndInvalidNamesAreRejected) {
  const auto error = [](std::int64_t units, const char* name) {
    ModelSetup setup;
    setup.network.layers = {LinearLayer(1000), LinearLayer(units)};
    setup.network.dueling = false;
    const PolicyBench bench(setup, DiscreteEnv({DType::kF32, {4}}, 2));
    return EncodeCPolicy(bench.Description(), bench.Parameters(), name).status();
  };
  // 4·1000 + 1000 + 1000·units + units + 2·units + 2.
  EXPECT_TRUE(error(1040, "policy").ok());
  EXPECT_THAT(error(1041, "policy").message(),
              testing::AllOf(HasSubstr("1049125"), HasSubstr("1048576"), HasSubstr("safetensors")));
  for (const char* const name : {"", "2x", "a-b", "x;"})
    EXPECT_THAT(error(3, name).message(), HasSubstr("prefix of names")) << name;
}

TEST(CPolicyTest, NamesComeFromFileNames) {
  EXPECT_EQ(CPolicyName("cart-pole.v1.c"), "cart_pole_v1");
  EXPECT_EQ(CPolicyName("2048.c"), "policy_2048");
  EXPECT_EQ(CPolicyName("__x.c"), "x");
  EXPECT_EQ(CPolicyName("é.c"), "policy");
}

TEST(CPolicyTest, MissingParameterIsNamed) {
  const PolicyCase c = PolicyCases()[0];
  const PolicyBench bench(c.setup, c.env);
  TensorFile parameters = bench.Parameters();
  parameters.tensors.erase("layers.1.bias");
  EXPECT_THAT(EncodeCPolicy(bench.Description(), parameters, "policy").status().message(),
              HasSubstr("layers.1.bias"));
}

}  // namespace
}  // namespace troop
