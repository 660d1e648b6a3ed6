// SPDX-License-Identifier: Apache-2.0

// Package screen draws what people read: one machine, one cluster, the summary of an approval. It is pure: objects and a
// time go in, text comes out; it asks no server and knows no terminal but for the style it is given.
package screen
