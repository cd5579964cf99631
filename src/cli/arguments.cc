#include "cli/arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <set>

namespace lockstep::cli {
namespace {

// Commands whose first word that is no flag is a file they need.
const std::set<std::string> kPositionalCommands = {"inspect"};

// Flags of one dash and more than one letter, which the parser would take for a row of short flags.
const std::map<std::string, std::string> kLongForms = {
    {"-tp", "--tp"}, {"-ctk", "--cache-type-k"}, {"-ctv", "--cache-type-v"}};

bool IsFlag(const std::string& word) {
  return word.size() > 1 && word[0] == '-';
}

// The subcommand that the words lead to.
const CLI::App* FindCommand(const CLI::App* app, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (IsFlag(word)) continue;
    const auto subs = app->get_subcommands([&word](const CLI::App* sub) { return sub->get_name() == word; });
    if (subs.empty()) break;
    app = subs[0];
  }
  return app;
}

// "--tp or --temp": the known words nearest to `word`, or "" where all are so far away that it would be a guess.
std::string Nearest(const std::string& word, const std::vector<std::string>& known) {
  std::vector<std::string> best;
  int best_distance = static_cast<int>(word.size()) / 3 + 1;
  for (const std::string& candidate : known) {
    int distance = EditDistance(word, candidate);
    if (distance > best_distance) continue;
    if (distance < best_distance) best.clear();
    best_distance = distance;
    best.push_back(candidate);
  }
  // The longer first: a letter left out (--tmp for --temp) is commoner than one too many.
  std::stable_sort(best.begin(), best.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return best.size() > 3 ? "" : fmt::format("{}", fmt::join(best, " or "));
}

// "bench step ": how to name the command behind "lockstep ".
std::string CommandPath(const CLI::App* command, const CLI::App* root) {
  if (command == root) return "";
  return CommandPath(command->get_parent(), root) + command->get_name() + " ";
}

}  // namespace

int EditDistance(const std::string& a, const std::string& b) {
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = static_cast<int>(i + j);
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

std::vector<std::string> NormaliseArguments(std::vector<std::string> arguments) {
  const bool needs_file = !arguments.empty() && kPositionalCommands.count(arguments[0]) > 0;
  std::vector<std::string> out;
  bool has_positional = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const std::string flag = word.substr(0, word.find('='));
    const auto known = kLongForms.find(flag);
    if (known != kLongForms.end()) {
      out.push_back(known->second + word.substr(flag.size()));
    } else if (word == "--json") {
      const bool has_next = i + 1 < arguments.size() && !IsFlag(arguments[i + 1]);
      // The word is still needed as the command's file if no other word can be it.
      const bool later = std::any_of(arguments.begin() + static_cast<std::ptrdiff_t>(std::min(i + 2, arguments.size())),
                                     arguments.end(), [](const std::string& w) { return !IsFlag(w); });
      if (has_next && (!needs_file || has_positional || later)) {
        out.push_back("--json=" + arguments[++i]);
      } else {
        out.push_back("--json=-");
      }
    } else {
      if (i > 0 && !IsFlag(word)) has_positional = true;
      out.push_back(word);
    }
  }
  return out;
}

std::string ExplainParseError(const CLI::App& app, const std::vector<std::string>& arguments,
                              const CLI::ParseError& error) {
  const CLI::App* command = FindCommand(&app, arguments);
  std::vector<std::string> known;
  for (const CLI::Option* option : command->get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    for (const std::string& name : option->get_snames()) known.push_back("-" + name);
  }
  for (const std::string& word : arguments) {
    const std::string flag = word.substr(0, word.find('='));
    if (!IsFlag(word) || std::find(known.begin(), known.end(), flag) != known.end()) continue;
    if (flag.size() > 1 && (std::isdigit(static_cast<unsigned char>(flag[1])) != 0)) continue;  // a negative number
    if (flag.size() > 2 && flag[1] != '-' && std::find(known.begin(), known.end(), flag.substr(0, 2)) != known.end())
      continue;
    const std::string nearest = Nearest(flag, known);
    return fmt::format("unknown flag {}{}; see lockstep {}--help", flag,
                       nearest.empty() ? "" : fmt::format(": did you mean {}?", nearest), CommandPath(command, &app));
  }
  std::vector<std::string> commands;
  for (const CLI::App* sub : command->get_subcommands([](const CLI::App*) { return true; }))
    commands.push_back(sub->get_name());
  for (const std::string& word : arguments) {
    if (commands.empty() || IsFlag(word) || word == command->get_name()) continue;
    const std::string nearest = Nearest(word, commands);
    return fmt::format("unknown command {}{}; the commands are {}", word,
                       nearest.empty() ? "" : fmt::format(": did you mean {}?", nearest), fmt::join(commands, ", "));
  }
  return error.what();
}

}  // namespace lockstep::cli
