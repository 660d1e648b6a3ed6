// SPDX-License-Identifier: Apache-2.0

// Package machine takes approved machines to Ready and keeps watching them. It decides from what is on the machine and
// in the object, never from what it did a moment ago: what is about to be sent is written to status.provisioning first,
// and after a crash the machine itself says whether it arrived, so that no configuration is ever sent twice. It writes
// status and finalizers only; a person's decisions in spec are read.
package machine
