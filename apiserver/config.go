// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/healthz"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	basecompatibility "k8s.io/component-base/compatibility"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/openapi"
	"maesh.dev/ichor/registry"
	"maesh.dev/ichor/registry/slots"
	"maesh.dev/ichor/registry/talosmachines"
)

// Config is what a server is made of.
type Config struct {
	Generic *genericapiserver.RecommendedConfig
	Gate    []slots.Option
	Streams talosmachines.NodeStreams
}

// Config turns the options into a configuration. It opens the serving port and reads from the kube-apiserver.
func (o *Options) Config(ctx context.Context) (*Config, error) {
	if err := o.Complete(); err != nil {
		return nil, err
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	seen, err := o.checkTrust(ctx)
	if err != nil {
		return nil, err
	}
	rights, err := o.awaitRights(ctx)
	if err != nil {
		return nil, err
	}
	config := genericapiserver.NewRecommendedConfig(Codecs)
	describeAPI(config)
	// A log that is followed has no end. The kube-apiserver thinks the same of this name.
	config.LongRunningFunc = genericfilters.BasicLongRunningRequestCheck(sets.NewString("watch"), sets.NewString("log"))
	if err := o.Run.ApplyTo(&config.Config); err != nil {
		return nil, fmt.Errorf("apply run options: %w", err)
	}
	leaving, err := addLeaving(&config.Config)
	if err != nil {
		return nil, err
	}
	config.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		// The filter's questions alone are asked broadly: what policies and the storage ask about, no kube-apiserver has judged.
		broad := *c
		broad.Authorization.Authorizer = broadFirst{c.Authorization.Authorizer}
		return leaving.with(genericapiserver.DefaultBuildHandlerChain(withoutNamespaces(withoutStrategicMerge(withFaultsExplained(withJSONForObjects(handler)))), &broad))
	}
	config.FeatureGate = o.globals.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	if err := o.applyEtcd(config); err != nil {
		return nil, fmt.Errorf("apply etcd options: %w", err)
	}
	// Everything but etcd, which takes a storage factory that honours versions and media types by resource, and
	// authentication.
	recommended := *o.Recommended
	recommended.Etcd, recommended.Authentication = nil, nil
	if err := recommended.ApplyTo(config); err != nil {
		return nil, fmt.Errorf("apply options: %w", err)
	}
	trusted, err := o.authenticate(ctx, &config.Config, seen)
	if err != nil {
		return nil, err
	}
	trusted.guard(&config.Config)
	if err := rights.guard(&config.Config); err != nil {
		return nil, err
	}
	if config.AdmissionControl != nil {
		config.AdmissionControl = observedAdmission{config.AdmissionControl}
	}
	if err := checkAccess(&config.Config); err != nil {
		return nil, err
	}
	streams, err := o.nodeStreams()
	if err != nil {
		return nil, err
	}
	return &Config{Generic: config, Gate: o.Gate, Streams: streams}, nil
}

func describeAPI(config *genericapiserver.RecommendedConfig) {
	namer := openapinamer.NewDefinitionNamer(Scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(openapi.GetOpenAPIDefinitions, namer)
	config.OpenAPIConfig.Info.Title = "Ichor"
	config.OpenAPIConfig.Info.Version = Version
	config.OpenAPIConfig.PostProcessSpec = withoutStrategicMergeV2
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, namer)
	config.OpenAPIV3Config.Info.Title = "Ichor"
	config.OpenAPIV3Config.Info.Version = Version
	config.OpenAPIV3Config.PostProcessSpec = withoutStrategicMergeV3
}

// applyEtcd sets where and how objects are stored: JSON of v1alpha1 under <prefix>/<resource>/<name>, which is frozen.
func (o *Options) applyEtcd(config *genericapiserver.RecommendedConfig) error {
	encoding := serverstorage.NewDefaultResourceEncodingConfigForEffectiveVersion(Scheme, config.EffectiveVersion)
	for _, resource := range registry.Stored {
		encoding.SetResourceEncoding(ichor.Resource(resource), v1alpha1.SchemeGroupVersion, ichor.SchemeGroupVersion)
	}
	storage := o.Recommended.Etcd.StorageConfig
	storage.StorageObjectCountTracker = config.StorageObjectCountTracker
	factory := serverstorage.NewDefaultStorageFactory(storage, o.Recommended.Etcd.DefaultStorageMediaType, Codecs, encoding,
		serverstorage.NewResourceConfig(), nil)
	etcd := *o.Recommended.Etcd
	etcd.StorageConfig = storage
	etcd.WatchCacheSizes = slices.Clone(etcd.WatchCacheSizes)
	for _, resource := range registry.Uncached {
		etcd.WatchCacheSizes = append(etcd.WatchCacheSizes, ichor.Resource(resource).String()+"#0")
	}
	if err := etcd.ApplyWithStorageFactoryTo(factory, &config.Config); err != nil {
		if etcd.EncryptionProviderConfigFilepath != "" {
			return fmt.Errorf("--encryption-provider-config %s: %w", etcd.EncryptionProviderConfigFilepath, err)
		}
		return err
	}
	// Without its key service a server can read nothing. The library's own check goes with those of etcd, which are left out.
	if keys, ok := config.ResourceTransformers.(healthz.HealthChecker); ok {
		config.AddReadyzChecks(keys)
	}
	return addEtcdCheck(&config.Config, storage, o.EtcdTolerance)
}

// CompletedConfig is a configuration with nothing left to fill.
type CompletedConfig struct {
	generic genericapiserver.CompletedConfig
	gate    []slots.Option
	streams talosmachines.NodeStreams
}

// Complete fills what is left.
func (c *Config) Complete() CompletedConfig {
	return CompletedConfig{generic: c.Generic.Complete(), gate: slices.Clone(c.Gate), streams: c.Streams}
}
