// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"sigs.k8s.io/yaml"

	"maesh.dev/ichor/test/hollow/kubernetes/pki"
)

// apiServerFiles are the paths of the API server's configuration files.
type apiServerFiles struct {
	admission, audit, authorization, encryption string
}

// object is a configuration file before it is YAML.
type object = map[string]any

// writeAPIServerFiles renders the files; contents are what they hold, in a fixed order.
func writeAPIServerFiles(cluster config.ClusterConfig, folder pki.Folder) (files apiServerFiles, contents [][]byte, err error) {
	for _, file := range []struct {
		name string
		path *string
		body object
	}{
		{"admission-control-config.yaml", &files.admission, admission(cluster.APIServer().AdmissionControl())},
		{"auditpolicy.yaml", &files.audit, cluster.APIServer().AuditPolicy()},
		{"authorization-config.yaml", &files.authorization, authorization(cluster.APIServer().AuthorizationConfig())},
		{"encryptionconfig.yaml", &files.encryption, encryption(cluster)},
	} {
		content, marshalErr := yaml.Marshal(file.body)
		if marshalErr != nil {
			return files, nil, fmt.Errorf("render %s: %w", file.name, marshalErr)
		}

		if *file.path, err = folder.Write(file.name, content); err != nil {
			return files, nil, err
		}

		contents = append(contents, content)
	}

	return files, contents, nil
}

func admission(plugins []config.AdmissionPlugin) object {
	list := []any{}
	for _, plugin := range plugins {
		list = append(list, object{"name": plugin.Name(), "configuration": plugin.Configuration()})
	}

	return object{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": list}
}

// authorization puts Node and RBAC first unless the configuration places them itself.
func authorization(authorizers []config.AuthorizationConfigAuthorizer) object {
	var list []any

	for _, builtin := range []struct{ kind, name string }{{"Node", "node"}, {"RBAC", "rbac"}} {
		placed := slices.ContainsFunc(authorizers, func(a config.AuthorizationConfigAuthorizer) bool {
			return a.Type() == builtin.kind
		})
		if !placed {
			list = append(list, object{"type": builtin.kind, "name": builtin.name})
		}
	}

	for _, authorizer := range authorizers {
		entry := object{"type": authorizer.Type(), "name": authorizer.Name()}
		if webhook := authorizer.Webhook(); webhook != nil {
			entry["webhook"] = webhook
		}

		list = append(list, entry)
	}

	return object{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration", "authorizers": list}
}

// encryption encrypts Secrets in etcd. The key names are Talos' own: they are stored with every object.
func encryption(cluster config.ClusterConfig) object {
	var providers []any

	key := func(provider, name, secret string) {
		if secret != "" {
			providers = append(providers, object{provider: object{"keys": []any{object{"name": name, "secret": secret}}}})
		}
	}

	key("secretbox", "key2", cluster.SecretboxEncryptionSecret())
	key("aescbc", "key1", cluster.AESCBCEncryptionSecret())

	providers = append(providers, object{"identity": object{}})

	return object{
		"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
		"resources": []any{object{"resources": []any{"secrets"}, "providers": providers}},
	}
}
