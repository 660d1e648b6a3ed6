// SPDX-License-Identifier: Apache-2.0

package localstack

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"maesh.dev/ichor/test/localstack/state"
)

// plain needs no quotes in a shell.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,-]+$`)

// quote makes one word of a text for a POSIX shell.
func quote(text string) string {
	if plain.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// Environment is what a shell evaluates to work with a stack.
func Environment(dir state.Dir, binaries string) (string, error) {
	absolute, err := filepath.Abs(binaries)
	if err != nil {
		return "", fmt.Errorf("folder of programs %s: %w", binaries, err)
	}
	return fmt.Sprintf("export KUBECONFIG=%s\nexport TALOSCONFIG=%s\nexport PATH=%s:\"$PATH\"\n",
		quote(dir.Kubeconfig()), quote(dir.TalosConfig()), quote(absolute)), nil
}
