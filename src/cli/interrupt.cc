#include "cli/interrupt.h"

#include <atomic>
#include <csignal>

namespace lockstep::cli {
namespace {

std::function<void()> request_to_stop;
std::atomic<bool> was_interrupted{false};

void OnSignal(int signal_number) {
  was_interrupted.store(true);
  if (request_to_stop) request_to_stop();
  std::signal(signal_number, SIG_DFL);  // a second one ends the process at once
}

}  // namespace

InterruptGuard::InterruptGuard(std::function<void()> request) {
  request_to_stop = std::move(request);
  was_interrupted.store(false);
  struct sigaction action = {};
  action.sa_handler = OnSignal;  // without SA_RESTART: a read at a chat's prompt ends too
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

InterruptGuard::~InterruptGuard() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  request_to_stop = nullptr;
}

bool InterruptGuard::interrupted() {
  return was_interrupted.load();
}

}  // namespace lockstep::cli
