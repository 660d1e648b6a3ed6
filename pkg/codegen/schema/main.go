// SPDX-License-Identifier: Apache-2.0

// Command schema prints the OpenAPI v2 definitions of the served types, which the apply configuration generator needs
// to know how lists merge.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"maesh.dev/ichor/pkg/openapi"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "schema:", err)
		os.Exit(1)
	}
}

func run() error {
	definitions := openapi.GetOpenAPIDefinitions(func(name string) spec.Ref {
		return spec.MustCreateRef("#/definitions/" + name)
	})
	schemas := make(map[string]spec.Schema, len(definitions))
	for name, definition := range definitions {
		// A definition may carry an OpenAPI v2 variant, for instance for IntOrString.
		schema := definition.Schema
		if v2, ok := schema.Extensions[common.ExtensionV2Schema]; ok {
			if typed, ok := v2.(spec.Schema); ok {
				schema = typed
			}
		}
		schemas[strings.ReplaceAll(name, "/", "~1")] = schema
	}
	return json.NewEncoder(os.Stdout).Encode(&spec.Swagger{
		SwaggerProps: spec.SwaggerProps{
			Definitions: schemas,
			Info:        &spec.Info{InfoProps: spec.InfoProps{Title: "Ichor", Version: "v1alpha1"}},
			Swagger:     "2.0",
			Paths:       &spec.Paths{},
		},
	})
}
