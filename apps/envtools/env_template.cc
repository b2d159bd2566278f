// `troop env new`: copies an example environment under a new name.
#include "apps/envtools/env_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>

namespace troop {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kNameMax = 40;
// Placeholder in the templates for the prefix of find_package(troop).
constexpr std::string_view kPrefixUnknown = "<where Troop is installed>";

// "two_tanks" -> "TwoTanks"
std::string CamelCase(std::string_view name) {
  std::string camel;
  bool upper = true;
  for (const char c : name) {
    if (c != '_') camel += upper ? char(std::toupper(static_cast<unsigned char>(c))) : c;
    upper = c == '_';
  }
  return camel;
}

// `text` with every occurrence of `from` replaced.
std::string Replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
    text.replace(at, from.size(), to);
    at += to.size();
  }
  return text;
}

// The name must be valid for a file, a C++ class, a CMake target and a Python module.
Status CheckName(std::string_view name) {
  const auto fits = [](unsigned char c) { return std::islower(c) || std::isdigit(c) || c == '_'; };
  const bool good = !name.empty() && name.size() <= kNameMax && std::ranges::all_of(name, fits) &&
                    std::islower(static_cast<unsigned char>(name[0])) != 0 && name.back() != '_';
  if (good && name.find("__") == std::string_view::npos && name != "test") return Status::Ok();
  return InvalidArgument(
      "\"{}\" is not a valid name; use at most {} lower-case letters, digits and _, a letter "
      "first, such as my_env",
      name, kNameMax);
}

// An example and the names that `--language` accepts for it.
struct Example {
  std::string_view language, folder,
      name;  // such as "c++", "cpp", "inventory" (the name inside its files)
};
constexpr Example kExamples[] = {
    {"c", "c", "two_tanks"}, {"c++", "cpp", "inventory"}, {"python", "python", "battery"}};

// Quotes a path for a shell if it contains a space.
std::string Word(const std::string& path) {
  return path.find(' ') == std::string::npos ? path : "\"" + path + "\"";
}

}  // namespace

// A build folder has troopConfig.cmake next to the program; an installation has bin/ and include/.
std::string PackagePrefix(const fs::path& program) {
  const fs::path folder = program.parent_path();
  std::error_code error;
  if (fs::exists(folder / "troopConfig.cmake", error)) return folder.string();
  const fs::path prefix = folder.parent_path();
  return fs::exists(prefix / "include/troop_env.h", error) ? prefix.string() : std::string();
}

Result<std::vector<std::string>> WriteEnvProject(const std::string& parent, const std::string& name,
                                                 const std::string& language,
                                                 const std::string& prefix) {
  TROOP_RETURN_IF_ERROR(CheckName(name));
  const auto is_meant = [&](const Example& e) {
    return e.language == language || e.folder == language;
  };
  const auto example = std::ranges::find_if(kExamples, is_meant);
  if (example == std::end(kExamples)) {
    return InvalidArgument("no template for the language {}; languages: c, c++, python", language);
  }
  // symlink_status: a dangling link also counts as existing.
  const fs::path folder = fs::path(parent) / name;
  std::error_code error;
  if (fs::symlink_status(folder, error).type() != fs::file_type::not_found) {
    return AlreadyExists("{} exists; choose another name, or remove it", folder.string());
  }
  if (!fs::create_directory(folder, error)) {
    return InvalidArgument("cannot create the folder {}: {}", folder.string(), error.message());
  }
  // Renames both spellings: "two_tanks" for files and ids, "TwoTanks" for classes.
  const auto named = [&](std::string_view text) {
    const std::string small = Replaced(std::string(text), example->name, name);
    return Replaced(small, CamelCase(example->name), CamelCase(name));
  };
  std::vector<std::string> written;
  for (const EnvTemplate& file : EnvTemplates()) {
    if (file.language != example->folder) continue;
    const fs::path path = folder / named(file.file);
    std::ofstream out(path, std::ios::binary);
    out << (prefix.empty() ? named(file.text)
                           : Replaced(named(file.text), kPrefixUnknown, Word(prefix)));
    out.close();
    if (!out) return InvalidArgument("cannot write {}: {}", path.string(), strerror(errno));
    written.push_back(path.string());
  }
  return written;
}

}  // namespace troop
