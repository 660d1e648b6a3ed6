// SPDX-License-Identifier: Apache-2.0

// Package progress tells of each kind whether an object is as it was asked to be, is on its way, or stands still until
// somebody does something. The server writes that into two conditions of every object, Reconciling and Stalled, with
// every write: what watches objects of all kinds (kstatus in Flux, Helm and kubectl plug-ins, Argo CD) reads those two,
// and knows nothing of phases and conditions that are a kind's own.
//
// Both follow kstatus' rule: True says that something is out of the ordinary, and a condition that isn't there is as good
// as False. They are the server's: what a client writes into them is put back.
//
// Source: github.com/fluxcd/cli-utils, pkg/kstatus/status.
package progress
