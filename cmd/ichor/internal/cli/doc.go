// SPDX-License-Identifier: Apache-2.0

// Package cli is what every command of ichor stands on: the streams and facts about the terminal it was started in, the
// clients made from the kubeconfig flags, and the rules for errors and exit statuses. It owns no command and prints no
// result.
package cli
