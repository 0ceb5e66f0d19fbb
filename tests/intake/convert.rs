//! Tokens to local hashes: what is equal must be, and nothing else.

use std::collections::HashMap;

use kvradix::hash::LocalHasher;
use kvradix::intake::{
    Adapter, Converter, Decoder, Drops, Event, Image, Prompt, Reason, Salt, Stored,
};
use kvradix::{LocalHash, SequenceHash};

use crate::encode::{Engine, Key, Said, Store, batch, bytes, event, rng};

/// What a store of vLLM's becomes; with the salt that is handed down.
fn convert(
    store: &Store,
    engine: Engine,
    inherited: Option<&Salt>,
) -> Result<(Vec<LocalHash>, Option<Salt>), Reason> {
    let mut rng = rng(1);
    let event = event(&Said::Store(store.clone()), engine, &mut rng);
    let (payload, _) = bytes(&batch(vec![event], None, &mut rng), &mut rng);
    let (mut decoder, mut drops) = (Decoder::default(), Drops::new());
    let batch = decoder.decode(&payload, &mut drops).unwrap();
    let [Event::Stored(stored)] = &batch.events[..] else { panic!("{drops:?}") };
    let mut blocks = Vec::new();
    let salt = Converter::new(2).convert(stored, inherited, &mut blocks)?;
    let names: Vec<_> = blocks.iter().map(|block| block.sequence.0).collect();
    assert_eq!(names, store.hashes);
    Ok((blocks.iter().map(|block| block.local).collect(), salt))
}

/// A store of blocks of two tokens at the root.
fn store(tokens: &[u32]) -> Store {
    Store {
        hashes: (0..tokens.len() as u64 / 2).map(|block| 100 + block).collect(),
        tokens: tokens.to_vec(),
        block_size: 2,
        ..Store::default()
    }
}

fn hash(prompt: Prompt<'_>) -> Vec<LocalHash> {
    Converter::new(2).hash_prompt(&prompt)
}

const TOKENS: [u32; 6] = [1, 2, 3, 4, 5, 6];

#[test]
fn hashes_are_those_that_other_routers_compute() {
    let tokens: Vec<u32> = (1..=40).collect();
    let expect = |adapter, salt, hashes: [u64; 2]| {
        let prompt = Prompt { tokens: &tokens, adapter, salt, images: &[] };
        let found = Converter::new(16).hash_prompt(&prompt);
        assert_eq!(found, LocalHash::from_slice(&hashes));
    };
    let (lora, salt) = (Adapter::Name("lora-a"), Some("salt-1"));
    expect(Adapter::None, None, [0xea06fc71a5ee6e88, 0x1fbf39bd106be0b5]);
    expect(Adapter::Name(""), Some(""), [0xea06fc71a5ee6e88, 0x1fbf39bd106be0b5]);
    expect(lora, None, [0x0702878993acc331, 0x2da6bdcd9245fe44]);
    expect(Adapter::None, salt, [0x120a7d9380e92fe7, 0xb302f3bcf82e9db1]);
    expect(lora, salt, [0x21cf74cca828e8a8, 0xafa9543ba847e5ff]);
}

#[test]
fn a_store_hashes_as_the_request_does_that_made_it() {
    let plain = hash(Prompt::new(&TOKENS));
    assert_eq!(convert(&store(&TOKENS), Engine::VllmMap, None), Ok((plain.clone(), None)));
    assert_eq!(plain, LocalHasher::new(2).hash_blocks(&TOKENS));

    // A child's store begins anywhere: local hashes have no chain.
    let mut child = store(&TOKENS[2..]);
    child.parent = Some(100);
    child.hashes = vec![101, 102];
    assert_eq!(convert(&child, Engine::VllmArray, None).unwrap().0, plain[1..]);
}

#[test]
fn the_adapter_is_told_by_name_or_number_and_once_more_among_the_keys() {
    let named = hash(Prompt { adapter: Adapter::Name("lora"), ..Prompt::new(&TOKENS) });
    let numbered = hash(Prompt { adapter: Adapter::Id(4), ..Prompt::new(&TOKENS) });
    let keys = |key: Key| Some(vec![Some(vec![key]); 3]);
    let text = || Key::Text("lora".into());
    let (id, name) = (Some(4), Some("lora".to_owned()));
    for (lora_id, lora_name, keys, expected) in [
        (id, name.clone(), None, &named),
        (None, name.clone(), keys(text()), &named),
        (id, name.clone(), keys(text()), &named),
        // Its name is known by the keys alone.
        (id, None, keys(text()), &named),
        (id, Some(String::new()), keys(text()), &named),
        (id, None, None, &numbered),
        (id, None, keys(Key::Number(4)), &numbered),
    ] {
        let store = Store { lora_id, lora_name, keys, ..store(&TOKENS) };
        assert_eq!(convert(&store, Engine::VllmMap, None).unwrap(), (expected.clone(), None));
    }
    // No adapter has number 0.
    let zero = Store { lora_id: Some(0), ..store(&TOKENS) };
    assert_eq!(convert(&zero, Engine::VllmMap, None).unwrap().0, hash(Prompt::new(&TOKENS)));
}

#[test]
fn the_salt_of_a_prompt_s_first_block_is_that_of_all_and_of_those_below() {
    let salted = hash(Prompt { salt: Some("s"), ..Prompt::new(&TOKENS) });
    let both = Prompt { salt: Some("s"), adapter: Adapter::Name("s"), ..Prompt::new(&TOKENS) };

    let mut root = store(&TOKENS[..4]);
    root.keys = Some(vec![Some(vec![Key::Text("s".into())]), None]);
    let (hashes, salt) = convert(&root, Engine::VllmMap, None).unwrap();
    assert_eq!(hashes, salted[..2]);
    assert_eq!(salt.as_deref(), Some("s"));

    let mut child = store(&TOKENS[4..]);
    child.parent = Some(101);
    let (hashes, handed) = convert(&child, Engine::VllmMap, salt.as_ref()).unwrap();
    assert_eq!(hashes, salted[2..]);
    assert_eq!(handed, salt);

    // An adapter of the salt's name: each is told once.
    root.lora_name = Some("s".into());
    let text = || Key::Text("s".into());
    root.keys = Some(vec![Some(vec![text(), text()]), Some(vec![text()])]);
    assert_eq!(convert(&root, Engine::VllmMap, None).unwrap().0, hash(both)[..2]);

    // SGLang tells it each time, so nothing needs to be handed down.
    for (engine, parent) in
        [Engine::SglangArray, Engine::SglangMap].into_iter().zip([None, Some(9)])
    {
        let store = Store { salt: Some("s".into()), parent, ..store(&TOKENS) };
        assert_eq!(convert(&store, engine, None), Ok((salted.clone(), None)));
    }
}

#[test]
fn an_image_is_a_key_of_each_block_that_it_reaches_into() {
    let images = [Image { id: "cat", start: 1, tokens: 4 }];
    let with = hash(Prompt { images: &images, ..Prompt::new(&TOKENS) });
    let key = |offset| Some(vec![Key::Image("cat".into(), offset)]);
    let mut told = store(&TOKENS);
    told.keys = Some(vec![key(1), key(-1), key(-3)]);
    assert_eq!(convert(&told, Engine::VllmMap, None).unwrap().0, with);

    let short = [Image { id: "cat", start: 3, tokens: 1 }];
    let with = hash(Prompt { images: &short, ..Prompt::new(&TOKENS) });
    let plain = hash(Prompt::new(&TOKENS));
    assert_eq!((with[0], with[2]), (plain[0], plain[2]));
    assert_ne!(with[1], plain[1]);

    // Beyond the prompt, and of no tokens: nothing, and no panic.
    let odd = [
        Image { id: "cat", start: usize::MAX, tokens: usize::MAX },
        Image { id: "dog", start: 2, tokens: 0 },
    ];
    assert_eq!(hash(Prompt { images: &odd, ..Prompt::new(&TOKENS) }), plain);
}

#[test]
fn equal_tokens_in_another_company_never_match() {
    let mut seen = HashMap::new();
    let mut add = |what: String, hash: LocalHash| {
        if let Some(other) = seen.insert(hash, what.clone()) {
            panic!("{what} hashes as {other} does");
        }
    };
    let adapters = [
        Adapter::None,
        Adapter::Name("a"),
        Adapter::Name("1"),
        Adapter::Id(1),
        Adapter::Id(-1),
        Adapter::Name("s"),
    ];
    let image = |id, start| Image { id, start, tokens: 1 };
    let pictures: [&[Image]; 6] = [
        &[],
        &[image("a", 0)],
        &[image("a", 1)],
        &[image("a", 0), image("b", 1)],
        &[image("b", 0), image("a", 1)],
        &[image("a", 0), image("a", 1)],
    ];
    for adapter in adapters {
        for salt in [None, Some("s"), Some("a"), Some("1")] {
            for images in pictures {
                let prompt = Prompt { tokens: &TOKENS[..2], adapter, salt, images };
                add(format!("{prompt:?}"), hash(prompt)[0]);
            }
        }
    }
    let keys = [
        Key::Text("a".into()),
        Key::Bytes(b"a".to_vec()),
        Key::Number(97),
        Key::Number(-97),
        Key::Text("97".into()),
    ];
    for key in keys {
        // Below another block a text is no salt.
        let keys = Some(vec![Some(vec![key.clone()])]);
        let store = Store { parent: Some(7), keys, ..store(&TOKENS[..2]) };
        let (hashes, _) = convert(&store, Engine::VllmArray, None).unwrap();
        add(format!("{key:?}"), hashes[0]);
    }
}

#[test]
fn a_store_that_does_not_fit_together_is_refused_for_its_reason() {
    let refused = |change: fn(&mut Store)| {
        let mut store = store(&TOKENS);
        change(&mut store);
        convert(&store, Engine::VllmMap, None).err()
    };
    assert_eq!(refused(|_| {}), None);
    assert_eq!(refused(|s| s.block_size = 3), Some(Reason::OtherBlockSize));
    assert_eq!(refused(|s| s.block_size = 0), Some(Reason::OtherBlockSize));
    assert_eq!(refused(|s| _ = s.tokens.pop()), Some(Reason::Unaligned));
    assert_eq!(refused(|s| s.tokens.truncate(4)), Some(Reason::CountsDiffer));
    assert_eq!(refused(|s| _ = s.hashes.pop()), Some(Reason::CountsDiffer));
    assert_eq!(refused(|s| s.hashes.clear()), Some(Reason::CountsDiffer));
    assert_eq!(refused(|s| s.keys = Some(vec![None; 2])), Some(Reason::CountsDiffer));
    assert_eq!(refused(|s| s.parent = Some(101)), Some(Reason::OwnParent));
    assert_eq!(refused(|s| s.kind = Some("mamba".into())), Some(Reason::OtherGroup));
    assert_eq!(refused(|s| s.kind = Some("sliding_window".into())), Some(Reason::OtherGroup));
    assert_eq!(refused(|s| s.kind = Some("sliding_window_mla".into())), Some(Reason::OtherGroup));
    assert_eq!(refused(|s| s.group = Some(1)), Some(Reason::OtherGroup));
    assert_eq!(refused(|s| s.group = Some(0)), None);
    for kind in ["full_attention", "mla_attention", "sink_full_attention"] {
        let full = Store { group: Some(3), kind: Some(kind.into()), ..store(&TOKENS) };
        assert!(convert(&full, Engine::VllmMap, None).is_ok(), "{kind}");
    }
}

#[test]
fn the_longest_block_and_the_shortest_are_blocks() {
    let tokens = vec![7; 4_096];
    let mut blocks = Vec::new();
    for size in [1, 4_096] {
        let hashes: Vec<_> = (0..4_096 / size).map(|name| SequenceHash(name.into())).collect();
        let stored =
            Stored { hashes: &hashes, tokens: &tokens, block_size: size, ..Stored::default() };
        Converter::new(size).convert(&stored, None, &mut blocks).unwrap();
        assert_eq!(blocks.len() as u32, 4_096 / size);
        let hashed = Converter::new(size).hash_prompt(&Prompt::new(&tokens));
        assert!(blocks.iter().map(|block| block.local).eq(hashed));
    }
}
