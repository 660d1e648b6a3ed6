// SPDX-License-Identifier: Apache-2.0

// Package talosclusters is the storage of TalosClusters. The main resource holds what people want; the network plugin in
// it changes only for those who hold the verb "configure" on talosclusters/cni. "status" holds what was observed, but
// for the control-plane slots, which only registry/slots writes. "finalize" lets the object go.
package talosclusters
