// Starts the members of a group, each on its own thread or in its own process, and brings them home.
//
// Requires: process mode: the caller has no other thread yet (checked), and the calling thread outlives the pool (the
//           kernel ties a child's life to the thread that forked it)
// Errors:   kInvalidArgument  other threads run already (process mode)
//           kOutOfMemory      a fork or a thread was refused
//           Join: the group's first fault, else the first status that a body returned
// Threads:  the caller's thread is member (0, 0), the leader; Start, leader and Join belong to it
// Capture:  Prepare
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "comm/group.h"

namespace lockstep::comm {

class RankPool {
 public:
  // Runs in every member except the leader, normally `while (m.WaitCommand(&c)) ...`. A status that is not ok poisons
  // the group, with the rank's number before its text.
  using Body = std::function<Status(Member&)>;

  static Result<std::unique_ptr<RankPool>> Start(const GroupOptions& options, Body body);
  // The same with a group made earlier, so that its shared area could be filled before the fork.
  static Result<std::unique_ptr<RankPool>> Start(std::unique_ptr<Group> group, Body body);
  ~RankPool();  // joins

  Group& group() { return *group_; }
  Member& leader() { return *leader_; }

  // Posts the shutdown and waits for every member. One that does not leave within a grace is told by poison, and a
  // process that still stays is killed. A second call returns the same status.
  Status Join();

 private:
  explicit RankPool(std::unique_ptr<Group> group);
  Status Launch(const Body& body);
  [[noreturn]] void RunChild(int rank, pid_t parent, const Body& body);
  void RunMember(int rank, int thread, const Body& body);
  bool WaitChildren(double secs);

  std::unique_ptr<Group> group_;
  std::unique_ptr<Member> leader_;
  std::vector<std::thread> threads_;
  bool joined_ = false;
  Status result_;
};

}  // namespace lockstep::comm
