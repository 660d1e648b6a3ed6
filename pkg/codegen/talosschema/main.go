// SPDX-License-Identifier: Apache-2.0

// Command talosschema prints the JSON schema of Talos' configuration that the machinery module ships, without what only
// editors need, and with the documents that it lacks.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const machinery = "github.com/siderolabs/talos/pkg/machinery"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "talosschema:", err)
		os.Exit(1)
	}
}

func run() error {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", machinery).Output()
	if err != nil {
		return fmt.Errorf("find the module %s: %w", machinery, err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "config", "schemas", "config.schema.json"))
	if err != nil {
		return fmt.Errorf("read the schema: %w", err)
	}
	var schema struct {
		Definitions map[string]any `json:"$defs"`
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		return fmt.Errorf("parse the schema: %w", err)
	}
	if err := complete(schema.Definitions); err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	out.SetIndent("", " ")
	return out.Encode(reduced(map[string]any(schema.Definitions)))
}

// reduced leaves out what editors show beside the description.
func reduced(value any) any {
	switch value := value.(type) {
	case map[string]any:
		_, isSchema := value["markdownDescription"]
		for key, member := range value {
			if key == "markdownDescription" || key == "x-intellij-html-description" || isSchema && key == "title" {
				delete(value, key)
				continue
			}
			value[key] = reduced(member)
		}
	case []any:
		for i := range value {
			value[i] = reduced(value[i])
		}
	}
	return value
}
