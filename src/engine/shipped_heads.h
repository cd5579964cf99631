// The draft heads that come with the program, found by the fingerprint of the model that they were trained for.
//
// A head is a folder of drafts/ beside the program's own folder (a build tree) or of ../share/lockstep/drafts (an
// installation). Its config.json names its models: "lockstep_targets": ["<fingerprint>", ...].
//
// Errors:  none: a folder that cannot be read is passed over, for nobody asked for it by name
// Threads: pure functions
#pragma once

#include <string>

namespace lockstep::engine {

// The folder of the head for this model, or "".
std::string FindShippedHead(const std::string& target_fingerprint);

// The same among the folders of `drafts`.
std::string FindHeadIn(const std::string& drafts, const std::string& target_fingerprint);

}  // namespace lockstep::engine
