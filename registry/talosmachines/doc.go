// SPDX-License-Identifier: Apache-2.0

// Package talosmachines is the storage of TalosMachines: who may change which field through which door. The main
// resource holds the identity, and what people may change at any time; "approval" holds the decision and what was
// decided, behind a verb of its own and the control-plane gate; "identity" holds a person's word on a doubtful
// identity; "status" what was observed; "finalize" lets the object go. A strategy resets what isn't its own to what it
// was, and declares the same fields as reset for server-side apply.
package talosmachines
