// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	coreconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"go.yaml.in/yaml/v4"
)

// MainDocument is the name of Talos' first document, which has no kind. Others are named by their kind, and by their name
// if they have one: UserVolumeConfig/data.
const MainDocument = "v1alpha1"

// DocumentName names a document.
func DocumentName(document config.Document) string {
	name := ""
	if named, ok := document.(config.NamedDocument); ok {
		name = named.Name()
	}
	return documentName(document.Kind(), name)
}

func documentName(kind, name string) string {
	switch {
	case kind == "" || kind == MainDocument:
		return MainDocument
	case name == "":
		return kind
	default:
		return kind + "/" + name
	}
}

// tree is a configuration as plain values, by the documents' names: what is left of it when types, order of keys, comments
// and defaults that nobody wrote don't count.
type tree map[string]any

// treeOf gives a configuration's values as the machinery writes them.
func treeOf(provider coreconfig.Provider) (tree, error) {
	trees := tree{}
	for _, document := range provider.Documents() {
		text, err := encoder.NewEncoder(document, encoder.WithComments(encoder.CommentsDisabled)).Encode()
		if err != nil {
			return nil, fmt.Errorf("document %s can't be written", DocumentName(document))
		}
		var value any
		if err := yaml.Unmarshal(text, &value); err != nil {
			return nil, fmt.Errorf("document %s can't be read back", DocumentName(document))
		}
		trees[DocumentName(document)] = tidy(value)
	}
	return trees, nil
}

// rawTree gives the values of documents that the machinery doesn't know, or not with these fields.
func rawTree(text []byte) (tree, error) {
	trees := tree{}
	for reader := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var value any
		switch err := reader.Decode(&value); {
		case errors.Is(err, io.EOF):
			return trees, nil
		case err != nil:
			return nil, errors.New("the configuration is no YAML") // the decoder's own words may quote it
		}
		fields, ok := tidy(value).(map[string]any)
		if !ok {
			continue // an empty document
		}
		kind, _ := fields["kind"].(string)
		name, _ := fields["name"].(string)
		trees[documentName(kind, name)] = fields
	}
}

// tidy drops what means nothing (a null, an object or list of nothing else) and makes numbers of one kind.
func tidy(value any) any {
	switch value := value.(type) {
	case map[string]any:
		clean := make(map[string]any, len(value))
		for key, member := range value {
			if member := tidy(member); member != nil {
				clean[key] = member
			}
		}
		if len(clean) == 0 && len(value) > 0 {
			return nil
		}
		return clean
	case map[any]any:
		clean := make(map[string]any, len(value))
		for key, member := range value {
			clean[fmt.Sprint(key)] = member
		}
		return tidy(clean)
	case []any:
		clean := make([]any, len(value))
		for i, member := range value {
			clean[i] = tidy(member)
		}
		return clean
	case int:
		return int64(value)
	case uint64:
		return int64(value)
	default:
		return value
	}
}

// leaves calls visit for each value that has nothing below it, in the order of keys.
func leaves(value any, path Path, visit func(Path, any)) {
	switch value := value.(type) {
	case map[string]any:
		if len(value) == 0 {
			visit(path, value)
		}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			leaves(value[name], path.at(key(name)), visit)
		}
	case []any:
		if len(value) == 0 {
			visit(path, value)
		}
		for i := range value {
			leaves(value[i], path.at(element(i)), visit)
		}
	default:
		visit(path, value)
	}
}

// shown is a value for people, in one line of JSON, or as it is if it is a text.
func shown(value any) string {
	const most = 256
	text, ok := value.(string)
	if !ok {
		encoded, err := json.Marshal(value)
		if err != nil {
			encoded = fmt.Append(nil, value)
		}
		text = string(encoded)
	}
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return text
}

// splitDocuments takes a configuration apart into its documents' texts, by name.
func splitDocuments(text []byte) map[string][]byte {
	parts := map[string][]byte{}
	for reader := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var node yaml.Node
		if reader.Decode(&node) != nil {
			return parts
		}
		var head struct {
			Kind string `yaml:"kind"`
			Name string `yaml:"name"`
		}
		if node.Decode(&head) != nil {
			continue
		}
		part, err := yaml.Marshal(&node)
		if err != nil {
			continue
		}
		parts[documentName(head.Kind, head.Name)] = part
	}
}
