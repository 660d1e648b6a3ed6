// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// table reads the rows of the first table in a markdown file, without its head, as cells.
func table(name string, columns int) ([][]string, error) {
	data, err := os.ReadFile(filepath.Join("..", "testdata", name))
	if err != nil {
		return nil, err
	}
	var rows [][]string
	for _, line := range strings.Split(string(data), "\n") {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|"), "|")
		if len(cells) != columns {
			return nil, fmt.Errorf("%s: %q has %d cells, want %d", name, line, len(cells), columns)
		}
		for i := range cells {
			cells[i] = strings.TrimPrefix(strings.TrimSuffix(cells[i], " "), " ")
		}
		rows = append(rows, cells)
	}
	if len(rows) < 3 {
		return nil, fmt.Errorf("%s: no table", name)
	}
	return rows[2:], nil
}

// roleLine is one line of roles.md.
type roleLine struct {
	roles           []string
	maintenanceOnly bool
}

// roleTable reads who may call what, by full method.
func roleTable() (map[string]roleLine, error) {
	data, err := os.ReadFile(filepath.Join("..", "testdata", "roles.md"))
	if err != nil {
		return nil, err
	}
	lines := map[string]roleLine{}
	for _, line := range strings.Split(string(data), "\n") {
		text, ok := strings.CutPrefix(line, "- ")
		if !ok {
			continue
		}
		parts := strings.Split(text, " | ")
		if len(parts) != 3 {
			return nil, fmt.Errorf("roles.md: %q is not roles, service and methods", line)
		}
		var entry roleLine
		for _, word := range strings.Fields(parts[0]) {
			if word == "maintenance" {
				entry.maintenanceOnly = true
			} else {
				entry.roles = append(entry.roles, word)
			}
		}
		for _, method := range strings.Fields(parts[2]) {
			lines["/"+parts[1]+"/"+method] = entry
		}
	}
	return lines, nil
}
