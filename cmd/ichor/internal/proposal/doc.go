// SPDX-License-Identifier: Apache-2.0

// Package proposal works out what an approval should decide: which disk is safe to install on, which interface the
// machine is on, which role and hostname come next. It is pure. It never guesses where a wrong guess wipes data: with two
// candidates for the install disk there is no proposal, and a person chooses.
package proposal
