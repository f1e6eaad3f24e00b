"""Python runs this when it starts: what a test starts has no network, either."""

import no_network

no_network.refuse()
