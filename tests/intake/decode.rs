//! Every form that says the same is read as the same; what cannot be read
//! costs no more than it must.

use kvradix::intake::{BatchError, Decoder, Drops, Event, Limits, Reason};
use rand::Rng;
use rmpv::Value;

use crate::encode::{
    ENGINES, Engine, Said, Store, batch, bytes, event, is_what_was_said, nested, random_event, rng,
};

#[test]
fn random_batches_in_every_form_are_read_as_they_were_meant() {
    let (mut rng, mut decoder) = (rng(1), Decoder::default());
    for round in 0..4_000 {
        let rank = rng.random_bool(0.5).then(|| rng.random_range(0..70_000));
        let (mut said, mut events) = (Vec::new(), Vec::new());
        for _ in 0..rng.random_range(0..6) {
            let engine = ENGINES[rng.random_range(0..ENGINES.len())];
            let next = random_event(engine, &mut rng);
            events.push(event(&next, engine, &mut rng));
            said.push(next);
        }
        let (payload, _) = bytes(&batch(events, rank, &mut rng), &mut rng);
        let mut drops = Drops::new();
        let read = decoder.decode(&payload, &mut drops).unwrap();
        assert_eq!((read.ts, read.rank, read.whole), (Some(1.5), rank, true), "round {round}");
        assert_eq!(read.events.len(), said.len(), "round {round}");
        for (read, said) in read.events.iter().zip(&said) {
            assert!(is_what_was_said(read, said), "round {round}: {read:?} for {said:?}");
        }
        assert_eq!(drops.total(), 0, "round {round}: {drops:?}");
    }
}

#[test]
fn an_event_that_cannot_be_read_costs_itself_alone() {
    let (mut rng, mut decoder) = (rng(2), Decoder::default());
    for _ in 0..2_000 {
        let (mut said, mut events) = (Vec::new(), Vec::new());
        let mut expected = Drops::new();
        for _ in 0..6 {
            let engine = ENGINES[rng.random_range(0..ENGINES.len())];
            let next = random_event(engine, &mut rng);
            let good = event(&next, engine, &mut rng);
            let (bad, reason) = match rng.random_range(0..6) {
                0 => (Value::Array(vec![Value::from("Novelty"), 1.into()]), Reason::UnknownTag),
                1 => (Value::Map(vec![("type".into(), "Novelty".into())]), Reason::UnknownTag),
                2 => (Value::from("no event"), Reason::NotAnEvent),
                3 => (Value::Array(vec![nested(&mut rng, 0), 5.into()]), Reason::NoTag),
                4 => (Value::Map(vec![("medium".into(), "GPU".into())]), Reason::NoTag),
                _ => {
                    events.push(good);
                    said.push(next);
                    continue;
                }
            };
            let is_text = matches!(&bad, Value::Array(values) if values[0].is_str());
            expected.add(if is_text && reason == Reason::NoTag {
                Reason::UnknownTag
            } else {
                reason
            });
            events.push(bad);
        }
        let (payload, _) = bytes(&batch(events, None, &mut rng), &mut rng);
        let mut drops = Drops::new();
        let read = decoder.decode(&payload, &mut drops).unwrap();
        assert!(read.whole);
        assert_eq!(drops, expected);
        assert_eq!(read.events.len(), said.len());
        assert!(read.events.iter().zip(&said).all(|(read, said)| is_what_was_said(read, said)));
    }
}

/// A store of vLLM's with every field, as a map.
fn full_store() -> Vec<(&'static str, Value)> {
    vec![
        ("type", "BlockStored".into()),
        ("block_hashes", vec![Value::from(1), 2.into()].into()),
        ("parent_block_hash", 9.into()),
        ("token_ids", vec![Value::from(1), 2.into()].into()),
        ("block_size", 1.into()),
        ("lora_id", 3.into()),
        ("medium", "GPU".into()),
        ("lora_name", "a".into()),
        ("extra_keys", vec![Value::Nil, vec![Value::from("x")].into()].into()),
        ("group_idx", 0.into()),
        ("kv_cache_spec_kind", "full_attention".into()),
        ("cache_salt", "s".into()),
    ]
}

/// What is counted when this field of a store is `value`, in map form and, if
/// it has a place there, in array form.
fn reasons_of(field: &str, value: Value) -> Vec<Option<Reason>> {
    let mut rng = rng(3);
    let mut fields = full_store();
    fields.iter_mut().find(|(name, _)| *name == field).unwrap().1 = value;
    let array = fields[..11].iter().map(|(_, value)| value.clone()).collect::<Vec<_>>();
    let map = fields.into_iter().map(|(name, value)| (name.into(), value)).collect();
    let mut forms = vec![Value::Map(map)];
    if field != "cache_salt" {
        forms.push(array.into());
    }
    let mut reasons = Vec::new();
    for form in forms {
        let after = Value::Array(vec![Value::from("AllBlocksCleared")]);
        let (payload, _) =
            bytes(&Value::Array(vec![0.into(), Value::Array(vec![form, after])]), &mut rng);
        let (mut decoder, mut drops) = (Decoder::new(small()), Drops::new());
        let read = decoder.decode(&payload, &mut drops).unwrap();
        assert!(read.whole);
        assert_eq!(read.events.last(), Some(&Event::Cleared), "{field}");
        assert_eq!(read.events.len() as u64 + drops.total(), 2);
        reasons.push(drops.iter().next().map(|(reason, _)| reason));
    }
    reasons
}

fn small() -> Limits {
    Limits { hashes: 4, tokens: 8, text: 16, extra_keys: 2, events: 3, payload: 4_096 }
}

#[test]
fn each_field_has_a_reason_of_its_own() {
    let list = |values: &[Value]| Value::from(values.to_vec());
    let float = || Value::from(1.0);
    let many = |count: usize| Value::Array(vec![Value::from(1); count]);
    let image = |id: Value, offset: Value| list(&[list(&[list(&[id, offset])]), Value::Nil]);
    let long = || Value::from("12345678901234567");
    let cases = [
        ("block_hashes", list(&[float()]), Reason::BadHash),
        ("block_hashes", list(&[1.into(), "1".into()]), Reason::BadHash),
        ("block_hashes", list(&[Value::from(vec![0_u8; 0])]), Reason::BadHash),
        ("block_hashes", list(&[Value::Nil]), Reason::BadHash),
        ("block_hashes", 1.into(), Reason::BadHash),
        ("block_hashes", Value::Nil, Reason::MissingField),
        ("block_hashes", many(5), Reason::TooLarge),
        ("parent_block_hash", "7".into(), Reason::BadHash),
        ("token_ids", list(&[Value::from(-1)]), Reason::BadTokens),
        ("token_ids", list(&[Value::from(1_u64 << 32)]), Reason::BadTokens),
        ("token_ids", list(&[list(&[])]), Reason::BadTokens),
        ("token_ids", Value::Map(vec![]), Reason::BadTokens),
        ("token_ids", many(9), Reason::TooLarge),
        ("block_size", Value::from(-16), Reason::BadBlockSize),
        ("block_size", "16".into(), Reason::BadBlockSize),
        ("block_size", Value::Nil, Reason::MissingField),
        ("lora_id", "3".into(), Reason::BadAdapter),
        ("lora_id", Value::from(u64::MAX), Reason::BadAdapter),
        ("lora_name", 3.into(), Reason::BadAdapter),
        ("lora_name", long(), Reason::TooLarge),
        ("lora_name", Value::Map(vec![("cache_salt".into(), 3.into())]), Reason::BadAdapter),
        ("cache_salt", 3.into(), Reason::BadAdapter),
        ("cache_salt", long(), Reason::TooLarge),
        ("medium", 1.into(), Reason::BadMedium),
        ("medium", long(), Reason::TooLarge),
        ("extra_keys", list(&[float(), Value::Nil]), Reason::BadExtraKeys),
        ("extra_keys", list(&[list(&[float()]), Value::Nil]), Reason::BadExtraKeys),
        ("extra_keys", list(&[list(&[Value::Nil]), Value::Nil]), Reason::BadExtraKeys),
        ("extra_keys", image("id".into(), "0".into()), Reason::BadExtraKeys),
        ("extra_keys", image(1.into(), 0.into()), Reason::BadExtraKeys),
        ("extra_keys", image(long(), 0.into()), Reason::TooLarge),
        ("extra_keys", list(&[many(3), Value::Nil]), Reason::TooLarge),
        ("extra_keys", "x".into(), Reason::BadExtraKeys),
        ("group_idx", Value::from(-1), Reason::BadGroup),
        ("kv_cache_spec_kind", 1.into(), Reason::BadGroup),
    ];
    for (field, value, reason) in cases {
        let reasons = reasons_of(field, value.clone());
        assert!(reasons.iter().all(|&found| found == Some(reason)), "{field} {value}: {reasons:?}");
    }
    for field in ["parent_block_hash", "token_ids", "lora_id", "medium", "lora_name", "cache_salt"]
    {
        assert!(reasons_of(field, Value::Nil).iter().all(Option::is_none), "{field}");
    }
    for field in ["extra_keys", "group_idx", "kv_cache_spec_kind"] {
        assert!(reasons_of(field, Value::Nil).iter().all(Option::is_none), "{field}");
    }
}

#[test]
fn arrays_may_be_cut_behind_the_required_fields_alone() {
    let fields: Vec<Value> = full_store().into_iter().map(|(_, value)| value).take(11).collect();
    for length in 1..=fields.len() {
        let event = Value::from(fields[..length].to_vec());
        let (payload, _) =
            bytes(&Value::Array(vec![0.into(), Value::Array(vec![event])]), &mut rng(4));
        let (mut decoder, mut drops) = (Decoder::default(), Drops::new());
        let read = decoder.decode(&payload, &mut drops).unwrap();
        assert_eq!(read.events.len(), usize::from(length >= 5), "{length} fields");
        assert_eq!(drops.of(Reason::MissingField), u64::from(length < 5), "{length} fields");
    }
}

#[test]
fn a_time_or_rank_that_cannot_be_read_costs_no_event() {
    let cleared = || Value::Array(vec![Value::Array(vec![Value::from("AllBlocksCleared")])]);
    let read = |batch: Vec<Value>| {
        let (payload, _) = bytes(&batch.into(), &mut rng(5));
        let (mut decoder, mut drops) = (Decoder::default(), Drops::new());
        let read = decoder.decode(&payload, &mut drops).unwrap();
        assert_eq!(read.events, [Event::Cleared]);
        assert!(read.whole);
        (read.ts, read.rank, drops.iter().collect::<Vec<_>>())
    };
    assert_eq!(read(vec![7.into(), cleared()]), (Some(7.0), None, vec![]));
    let bad = read(vec!["noon".into(), cleared(), 3.into()]);
    assert_eq!(bad, (None, Some(3), vec![(Reason::BadTimestamp, 1)]));
    let bad = read(vec![0.into(), cleared(), Value::from(-3)]);
    assert_eq!(bad, (Some(0.0), None, vec![(Reason::BadRank, 1)]));
}

#[test]
fn what_is_no_batch_is_an_error_and_counted() {
    let decode = |payload: &[u8]| {
        let (mut decoder, mut drops) = (Decoder::new(small()), Drops::new());
        let error = decoder.decode(payload, &mut drops).unwrap_err();
        assert_eq!(drops.iter().collect::<Vec<_>>(), [(Reason::BadBatch, 1)]);
        error
    };
    assert_eq!(decode(b""), BatchError::NotABatch);
    assert_eq!(decode(b"\xc1"), BatchError::NotABatch);
    assert_eq!(decode(b"\xa5hello"), BatchError::NotABatch);
    assert_eq!(decode(b"\x90"), BatchError::NoEvents);
    assert_eq!(decode(b"\x91\x01"), BatchError::NoEvents);
    assert_eq!(decode(b"\x92\x01\x02"), BatchError::NoEvents);
    assert_eq!(decode(b"\x81\xa2ts\x01"), BatchError::NoEvents);
    assert_eq!(decode(&[0; 5_000]), BatchError::TooLarge { bytes: 5_000 });
}

#[test]
fn events_above_the_limit_are_counted_one_by_one() {
    let cleared = Value::Array(vec![Value::from("AllBlocksCleared")]);
    let (payload, _) =
        bytes(&Value::Array(vec![0.into(), Value::Array(vec![cleared; 8])]), &mut rng(6));
    let (mut decoder, mut drops) = (Decoder::new(small()), Drops::new());
    let read = decoder.decode(&payload, &mut drops).unwrap();
    assert_eq!(read.events.len(), 3);
    assert!(read.whole);
    assert_eq!(drops.of(Reason::TooManyEvents), 5);
}

#[test]
fn bytes_behind_the_batch_are_counted_and_cost_nothing() {
    let (mut decoder, mut drops) = (Decoder::default(), Drops::new());
    let read = decoder.decode(b"\x92\x00\x91\x91\xb0AllBlocksCleared\xff\xff", &mut drops).unwrap();
    assert_eq!(read.events, [Event::Cleared]);
    assert!(read.whole);
    assert_eq!(drops.iter().collect::<Vec<_>>(), [(Reason::TrailingBytes, 1)]);
}

#[test]
fn a_decoder_remembers_nothing_of_the_payload_before() {
    let mut rng = rng(7);
    let mut decoder = Decoder::default();
    let said = Said::Store(Store {
        hashes: vec![1, 2],
        tokens: vec![5; 4],
        block_size: 2,
        ..Store::default()
    });
    let good = event(&said, Engine::VllmArray, &mut rng);
    let (good, _) = bytes(&batch(vec![good], None, &mut rng), &mut rng);
    for cut in 0..good.len() {
        _ = decoder.decode(&good[..cut], &mut Drops::new());
        let read = decoder.decode(&good, &mut Drops::new()).unwrap();
        assert!(is_what_was_said(&read.events[0], &said));
    }
}
