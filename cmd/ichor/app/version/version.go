// SPDX-License-Identifier: Apache-2.0

// Package version holds "ichor version".
package version

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/yaml"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Versions are what `ichor version -o json` prints.
type Versions struct {
	// Client is this program.
	Client Client `json:"client"`
	// Kubernetes is the version of the API server.
	Kubernetes string `json:"kubernetes,omitempty"`
	// API are the versions of Ichor's API that the cluster serves; empty if Ichor isn't installed.
	API []string `json:"api,omitempty"`
}

// Client is this program.
type Client struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// API is the version of Ichor's API that it speaks.
	API string `json:"api"`
}

// NewCommand makes "ichor version".
func NewCommand(env *cli.Env) *cobra.Command {
	var clientOnly bool
	var format string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this program, of Kubernetes and of Ichor's API",
		Args:  cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "" && format != "json" && format != "yaml" {
				return cli.Usagef("--output: %q is neither json nor yaml", format)
			}
			versions := Versions{Client: client()}
			var err error
			if !clientOnly {
				err = versions.ask(cmd.Context(), env)
			}
			if printErr := print(env, versions, format); printErr != nil {
				return printErr
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&clientOnly, "client", false, "Only this program's; ask no server.")
	cmd.Flags().StringVarP(&format, "output", "o", "", "json or yaml.")
	return cmd
}

// client reads what the Go tool stamped into the program.
func client() Client {
	made := Client{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, API: v1alpha1.SchemeGroupVersion.String()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return made
	}
	if info.Main.Version != "" {
		made.Version = info.Main.Version
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			made.Revision = setting.Value
		}
	}
	return made
}

func (v *Versions) ask(ctx context.Context, env *cli.Env) error {
	config, err := env.RESTConfig()
	if err != nil {
		return err
	}
	server, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	kubernetes, err := server.ServerVersionWithContext(ctx)
	if err != nil {
		return err
	}
	v.Kubernetes = kubernetes.GitVersion
	groups, err := server.ServerGroupsWithContext(ctx)
	if err != nil {
		return err
	}
	served := false
	for _, group := range groups.Groups {
		if group.Name != v1alpha1.GroupName {
			continue
		}
		for _, version := range group.Versions {
			v.API = append(v.API, version.GroupVersion)
			served = served || version.GroupVersion == v1alpha1.SchemeGroupVersion.String()
		}
	}
	if len(v.API) > 0 && !served {
		return fmt.Errorf("this program speaks %s, the cluster serves %v: use the release that fits the cluster", v1alpha1.SchemeGroupVersion, v.API)
	}
	return nil
}

func print(env *cli.Env, versions Versions, format string) error {
	switch format {
	case "json":
		encoder := json.NewEncoder(env.Out)
		encoder.SetIndent("", "    ")
		return encoder.Encode(versions)
	case "yaml":
		text, err := yaml.Marshal(versions)
		if err != nil {
			return err
		}
		_, err = env.Out.Write(text)
		return err
	}
	lines := fmt.Sprintf("Client: %s (%s, %s)\n", versions.Client.Version, versions.Client.Go, versions.Client.Platform)
	if versions.Kubernetes != "" {
		lines += fmt.Sprintf("Kubernetes: %s\n", versions.Kubernetes)
		api := "not served; Ichor isn't installed"
		if len(versions.API) > 0 {
			api = strings.Join(versions.API, ", ")
		}
		lines += fmt.Sprintf("Ichor API: %s\n", api)
	}
	_, err := fmt.Fprint(env.Out, lines)
	return err
}
