// SPDX-License-Identifier: Apache-2.0

// link_relay: a TCP relay that makes a link slow or bad, for trying a cluster
// by hand.

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/signals.h"
#include "common/base/status_macros.h"
#include "common/rpc/relay.h"
#include "common/rpc/relay_conditions.h"

namespace specwire {
namespace {

struct Flags {
  RelayOptions relay;
  std::string forward;
  std::string backward;
};

absl::StatusOr<std::unique_ptr<Relay>> StartRelay(const Flags& flags) {
  SPECWIRE_ASSIGN_OR_RETURN(const LinkConditions forward,
                            ParseLinkConditions(flags.forward, "--forward"));
  SPECWIRE_ASSIGN_OR_RETURN(const LinkConditions backward,
                            ParseLinkConditions(flags.backward, "--backward"));
  SPECWIRE_ASSIGN_OR_RETURN(std::unique_ptr<Relay> relay,
                            Relay::Start(flags.relay));
  SPECWIRE_RETURN_IF_ERROR(relay->SetConditions(forward, backward));
  return relay;
}

int Main(int argc, char** argv) {
  CLI::App app("Relays TCP connections under given conditions.", "link_relay");
  Flags flags;
  app.add_option("--listen",
                 flags.relay.listen,
                 "HOST:PORT to take connections on; port 0 takes a free one")
      ->capture_default_str();
  app.add_option("--target", flags.relay.target, "HOST:PORT to connect them to")
      ->required();
  app.add_option("--forward",
                 flags.forward,
                 "conditions towards the target, by commas: delay=TIME, "
                 "jitter=TIME, rate=BYTES a second, cut_after=BYTE, "
                 "flip_at=BYTE, flip_rate=CHANCE, stalled, blackhole, ended");
  app.add_option("--backward", flags.backward, "the same from the target");
  app.add_option("--seed", flags.relay.seed, "of jitter and flips")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  BlockShutdownSignals();
  const absl::StatusOr<std::unique_ptr<Relay>> relay = StartRelay(flags);
  if (!relay.ok()) {
    std::cerr << "link_relay: " << relay.status().message() << std::endl;
    return absl::IsInvalidArgument(relay.status()) ? 2 : 1;
  }
  std::cout << "listening on " << (*relay)->address() << std::endl;
  WaitForShutdownSignal();
  return 0;
}

}  // namespace
}  // namespace specwire

int main(int argc, char** argv) { return specwire::Main(argc, argv); }
